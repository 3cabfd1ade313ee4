// Package ovstest gives each test its own Open vSwitch: Debian's ovsdb-server and ovs-vswitchd in the test's host (see
// package kerneltest). The database and the sockets are in a directory of the test. It ends with the test.
package ovstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Switch is a running Open vSwitch.
type Switch struct {
	t      testing.TB
	Dir    string // directory of its files: short, because a socket's path must be
	daemon map[string]*daemon
}

type daemon struct {
	cmd *exec.Cmd
	end chan struct{}
}

// New starts an Open vSwitch.
func New(t testing.TB) *Switch {
	t.Helper()
	dir := kerneltest.MemoryDir(t)
	s := &Switch{t: t, Dir: dir, daemon: map[string]*daemon{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.logs()) // for example, a daemon says when it had no processor for seconds
		}
	})
	s.run("ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	s.StartDatabase()
	s.Ctl("--no-wait", "init")
	s.StartSwitch()
	return s
}

// Socket returns the path of the database's socket.
func (s *Switch) Socket() string { return filepath.Join(s.Dir, "db.sock") }

// StartDatabase starts ovsdb-server and waits until it listens.
func (s *Switch) StartDatabase() {
	s.t.Helper()
	s.start("ovsdb-server", s.Dir+"/conf.db", "--remote=punix:"+s.Socket(), "--unixctl="+s.Dir+"/db.ctl", "--no-chdir")
	s.wait(s.Socket())
}

// StartSwitch starts ovs-vswitchd.
func (s *Switch) StartSwitch() {
	s.t.Helper()
	s.start("ovs-vswitchd", "unix:"+s.Socket(), "--unixctl="+s.Dir+"/sw.ctl", "--no-chdir")
	s.wait(s.Dir + "/sw.ctl")
}

// Stop stops one of the two daemons as systemd does.
func (s *Switch) Stop(name string) {
	d := s.daemon[name]
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.end:
	case <-time.After(kerneltest.Slow(10 * time.Second)):
		_ = d.cmd.Process.Kill()
		<-d.end
	}
}

// Kill kills a daemon, as a crash would end it.
func (s *Switch) Kill(name string) {
	_ = s.daemon[name].cmd.Process.Kill()
	<-s.daemon[name].end
}

// Ctl runs ovs-vsctl and returns its output.
func (s *Switch) Ctl(args ...string) string {
	s.t.Helper()
	return s.run(append([]string{"ovs-vsctl", "--db=unix:" + s.Socket(), "--timeout=20"}, args...)...)
}

// Get returns one column by ovs-vsctl's "get", without the newline.
func (s *Switch) Get(table, record, column string) string {
	s.t.Helper()
	return strings.TrimSpace(s.Ctl("get", table, record, column))
}

func (s *Switch) env() []string {
	return append(os.Environ(), "OVS_RUNDIR="+s.Dir, "OVS_LOGDIR="+s.Dir, "OVS_DBDIR="+s.Dir, "OVS_SYSCONFDIR="+s.Dir)
}

func (s *Switch) run(argv ...string) string {
	s.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// start starts a daemon in the test's host.
func (s *Switch) start(argv ...string) {
	s.t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		path = "/usr/sbin/" + argv[0]
	}
	log, err := os.OpenFile(s.Dir+"/"+argv[0]+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	d := &daemon{cmd: &exec.Cmd{Path: path, Args: argv, Env: s.env(), Stdout: log, Stderr: log}, end: make(chan struct{})}
	if err := d.cmd.Start(); err != nil {
		s.t.Fatalf("start %s: %v", argv[0], err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.end)
	}()
	s.daemon[argv[0]] = d
	s.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.end
	})
}

// wait waits until a daemon listens at a socket.
func (s *Switch) wait(path string) {
	s.t.Helper()
	kerneltest.Eventually(s.t, func() error {
		err := kerneltest.Listens(path)
		if err != nil {
			err = fmt.Errorf("%w:\n%s", err, s.logs())
		}
		return err
	})
}

// logs returns the daemons' logs.
func (s *Switch) logs() (all string) {
	for name := range s.daemon {
		raw, err := os.ReadFile(filepath.Join(s.Dir, name+".log"))
		all += fmt.Sprintf("%s (%v):\n%s", name, err, raw)
	}
	return all
}

// State returns a switch's configuration as text.
func (s *Switch) State() string {
	s.t.Helper()
	return s.Ctl("--columns=name,ports", "list", "bridge") + s.Ctl("--columns=name,external_ids", "list", "port") +
		s.Ctl("--columns=name,type,options,external_ids", "list", "interface")
}
