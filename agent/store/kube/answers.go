package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// The client repeats a request after the time in the header Retry-After, up to ten times. The API server asks for a second
// under load. A proxy in front of it may ask for an hour, or for no pause at all.
const (
	shortestRetryAfter = time.Second
	longestRetryAfter  = 5 * time.Second
)

// LimitAnswers limits the time until an answer begins, and the pauses for which answers ask a client.
func LimitAnswers(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return answerLimits{next, answerWithin} })
}

// answerLimits is a transport with the limits of LimitAnswers.
type answerLimits struct {
	next   http.RoundTripper
	within time.Duration
}

var errNoAnswer = errors.New("no answer in time")

// RoundTrip implements http.RoundTripper. An answer that has begun may take any time: that of a watch goes on. If the caller
// does not wait for the next attempt, it gets this answer, which says what is wrong.
func (l answerLimits) RoundTrip(r *http.Request) (*http.Response, error) {
	const header = "Retry-After"
	ctx, end := context.WithCancelCause(r.Context())
	late := time.AfterFunc(l.within, func() { end(errNoAnswer) })
	answer, err := l.next.RoundTrip(r.WithContext(ctx))
	late.Stop()
	if err != nil {
		if context.Cause(ctx) == errNoAnswer {
			err = errNoAnswer
		}
		end(nil)
		return nil, err
	}
	answer.Body = body{answer.Body, end}
	if answer.Header.Get(header) == "" {
		return answer, nil
	}
	seconds, _ := strconv.Atoi(answer.Header.Get(header)) // the client ignores a date
	pause := min(max(seconds, int(shortestRetryAfter/time.Second)), int(longestRetryAfter/time.Second))
	answer.Header.Set(header, strconv.Itoa(pause))
	if deadline, limited := r.Context().Deadline(); limited && time.Until(deadline) < time.Duration(pause)*time.Second {
		answer.Header.Del(header)
	}
	return answer, nil
}

// body is the body of an answer. Close frees the context of its request.
type body struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (b body) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}
