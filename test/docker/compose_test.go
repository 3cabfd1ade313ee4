package docker

import (
	"path/filepath"
	"testing"
)

// TestCompose runs the example of contrib/docker with docker-compose, twice.
func TestCompose(t *testing.T) {
	m, outside := newLab(t)
	file, err := filepath.Abs("../../contrib/docker/compose.yaml")
	must(t, err)
	compose := func(args ...string) {
		t.Helper()
		_, err := m.Run(t.Context(), append([]string{"env", "DOCKER_HOST=unix://" + socket, "IMAGE=box", "docker-compose", "--project-name", "p", "--file", file}, args...)...)
		must(t, err)
	}
	for range 2 {
		compose("up", "--detach")
		m.wget("p_client_1", "http://web/", "hello")
		m.wget("p_client_1", "http://10.31.0.10/", "hello")
		get(t, outside, "http://"+m.V4.String()+":8080/", "hello")
		m.fails("p_client_1", "ping", "-c1", "-W1", outside.V4.String())
		m.ok(3)
		compose("down", "--timeout", "0")
		m.nothingLeft()
	}
}
