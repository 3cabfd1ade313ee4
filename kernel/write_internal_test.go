package kernel

import "testing"

// TestWriteEndsBetweenObjects checks that the requests of one object are in one write: a kill between the creation of a
// link and its owner tag would leave a link without an owner.
func TestWriteEndsBetweenObjects(t *testing.T) {
	link := &Veth{}
	var queue []queued
	for range requestsPerWrite - 1 {
		queue = append(queue, queued{object: &Route{}})
	}
	queue = append(queue, queued{object: link}, queued{object: link}, queued{object: &Route{}})
	if n := oneWrite(queue); n != requestsPerWrite+1 {
		t.Errorf("the first write has %d requests, want %d", n, requestsPerWrite+1)
	}
	if n := oneWrite(queue[requestsPerWrite+1:]); n != 1 {
		t.Errorf("the second write has %d requests, want 1", n)
	}
}
