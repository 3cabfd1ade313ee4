package kube

import (
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

// LimitRetryAfter limits the pauses for which answers ask a client.
func LimitRetryAfter(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return retryAfterLimit{next} })
}

// retryAfterLimit is a transport that limits the pauses for which answers ask.
type retryAfterLimit struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. If the caller does not wait for the next attempt, it gets this answer: it says what
// is wrong.
func (l retryAfterLimit) RoundTrip(r *http.Request) (*http.Response, error) {
	const header = "Retry-After"
	answer, err := l.next.RoundTrip(r)
	if err != nil || answer.Header.Get(header) == "" {
		return answer, err
	}
	seconds, _ := strconv.Atoi(answer.Header.Get(header)) // the client ignores a date
	pause := min(max(seconds, int(shortestRetryAfter/time.Second)), int(longestRetryAfter/time.Second))
	answer.Header.Set(header, strconv.Itoa(pause))
	if end, limited := r.Context().Deadline(); limited && time.Until(end) < time.Duration(pause)*time.Second {
		answer.Header.Del(header)
	}
	return answer, nil
}
