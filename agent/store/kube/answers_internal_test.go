package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAnswersBegin checks that a request ends if its answer does not begin, as behind a proxy that accepts everything, and
// that an answer which has begun may take longer, as that of a watch does.
func TestAnswersBegin(t *testing.T) {
	t.Parallel()
	const within = 500 * time.Millisecond
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			w.(http.Flusher).Flush()
			time.Sleep(2 * within)
			fmt.Fprint(w, "event")
			return
		}
		<-r.Context().Done()
	}))
	defer api.Close()
	client := &http.Client{Transport: answerLimits{http.DefaultTransport, within}}
	if answer, err := client.Get(api.URL + "/hangs"); !errors.Is(err, errNoAnswer) {
		t.Errorf("%v, %v, want %v", answer, err, errNoAnswer)
	}
	answer, err := client.Get(api.URL + "/begins")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(answer.Body)
	if string(raw) != "event" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
}
