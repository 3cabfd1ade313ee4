package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Member is one process of a cluster.
type Member struct {
	Name         string
	c            *Cluster
	netns        string
	client, peer string // host:port
	dir          string
	program      string
	flags        []string

	cmd    *kerneltest.Child
	output *kerneltest.Output
}

// started limits how long a member may take to start.
const started = 60 * time.Second

// Endpoint returns the member's client address.
func (m *Member) Endpoint() string { return m.c.scheme + "://" + m.client }

// peerURL returns the member's peer address. Peer traffic is not encrypted.
func (m *Member) peerURL() string { return "http://" + m.peer }

// PID returns the member's process ID.
func (m *Member) PID() int { return m.cmd.Process.Pid }

func (m *Member) start() {
	m.c.t.Helper()
	args := []string{m.program, "--name", m.Name, "--data-dir", m.dir, "--heartbeat-interval", "50", "--election-timeout", "500",
		"--unsafe-no-fsync", // no test loses power, and a busy disk would delay every commit
		"--listen-client-urls", m.Endpoint(), "--advertise-client-urls", m.Endpoint(),
		"--listen-peer-urls", m.peerURL(), "--initial-advertise-peer-urls", m.peerURL(), "--initial-cluster", m.c.initial()}
	if f := m.c.Files; f.CA != "" {
		args = append(args, "--cert-file", f.serverCert, "--key-file", f.serverKey, "--client-cert-auth", "--trusted-ca-file", f.CA)
	}
	args = append(args, m.flags...)
	if m.netns != "" {
		args = append([]string{"nsenter", "--net=" + m.netns}, args...)
	}
	m.output = &kerneltest.Output{}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = m.output, m.output
	var err error
	if m.cmd, err = kerneltest.StartChild(cmd); err != nil {
		m.c.t.Fatalf("start etcd (Debian's etcd-server has it): %v", err)
	}
	m.c.t.Cleanup(m.Kill)
}

// Wait waits until the member serves requests.
func (m *Member) Wait() {
	m.c.t.Helper()
	kerneltest.Within(m.c.t, started, func() error {
		if strings.Contains(m.output.String(), "ready to serve client requests") {
			return nil
		}
		select {
		case <-m.cmd.Exited:
			m.c.t.Fatalf("etcd %s ended:\n%s", m.Name, m.output)
		default:
		}
		return fmt.Errorf("etcd %s does not serve:\n%s", m.Name, m.output)
	})
}

// Kill kills the process. It does nothing if the process has ended.
func (m *Member) Kill() {
	_ = m.cmd.Process.Signal(syscall.SIGCONT)
	m.cmd.Kill()
}

// Pause stops the process. Its connections stay open, but nothing answers.
func (m *Member) Pause() { m.signal(syscall.SIGSTOP) }

// Resume resumes a paused process.
func (m *Member) Resume() { m.signal(syscall.SIGCONT) }

func (m *Member) signal(s os.Signal) {
	m.c.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.c.t.Fatalf("etcd %s: %v", m.Name, err)
	}
}

// Restart restarts a killed member with its data. It does not wait, because no member serves requests without a quorum.
func (m *Member) Restart() {
	m.c.t.Helper()
	m.start()
}

// Backup copies the data of a killed member. The returned function restores the copy after the member was killed again.
func (m *Member) Backup() (restore func()) {
	m.c.t.Helper()
	copied := filepath.Join(m.c.t.TempDir(), "backup")
	must(m.c.t, os.CopyFS(copied, os.DirFS(m.dir)))
	return func() {
		m.c.t.Helper()
		must(m.c.t, os.RemoveAll(m.dir))
		must(m.c.t, os.CopyFS(m.dir, os.DirFS(copied)))
	}
}

// Replace deletes the data of a killed member, so that it starts as a member of another cluster.
func (m *Member) Replace() {
	m.c.t.Helper()
	must(m.c.t, os.RemoveAll(m.dir))
	m.flags = append(m.flags, "--initial-cluster-token", "another")
}
