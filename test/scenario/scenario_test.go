// Package scenario runs testdata/*.txtar. Each is a host (a network namespace, with its state below $WORK),
// configurations, and expected results.
//
// The plugins run as processes: see package plugintest. In addition to testscript's commands there are
//
//	needs FEATURE...          skip on a kernel without one of these kerneltest features
//	netns NAME...             create container namespaces
//	endns NAME                delete a namespace, and leave an empty file at its path
//	in NAME COMMAND...        run a command in a namespace
//	serve NAME NETWORK ADDR   answer every connection or datagram with the peer's address
//	cni VERB CONF NAME [IFNAME]  run a list or a plugin; NAME "-" means no namespace, $CONTAINER is the container ID
//	dial NETWORK ADDR [FROM]  send hello and print the answer
//	dhcpnet BRIDGE ADDR ARG...   create a network with dnsmasq, which writes $WORK/dnsmasq.leases
//	dhcpd start|stop             start or stop the DHCP daemon at $DHCP_SOCKET
package scenario

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestMain(m *testing.M) {
	testscript.Main(withProgram{m}, map[string]func(){"dial": dialMain, "answer": answerMain, "taparp": tapARPMain})
}

// programs is the directory of every plugin, the runtime cni and the DHCP daemon.
var programs string

// withProgram runs tests with programs in front of PATH.
type withProgram struct{ *testing.M }

// Run implements testscript.TestingM.
func (m withProgram) Run() int {
	program, remove, err := plugintest.Build()
	if err == nil {
		defer remove()
		programs, err = os.MkdirTemp("", "fairlead-scenario-")
		defer os.RemoveAll(programs)
	}
	for _, name := range plugintest.Names() {
		if err == nil {
			err = os.Symlink(program, filepath.Join(programs, name))
		}
	}
	if err == nil {
		err = os.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.M.Run()
}

func TestScenarios(t *testing.T) {
	testscript.Run(t, params("", "testdata/*.txtar"))
}

// params returns the parameters for the scenarios that match patterns. If mode is empty, a list runs plugin by plugin;
// "fused" runs it as one plugin, and "in-process" in the runtime's process.
func params(mode string, patterns ...string) testscript.Params {
	var files []string
	for _, p := range patterns {
		f, _ := filepath.Glob(p) // the patterns are well-formed
		files = append(files, f...)
	}
	return testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LIST_MODE", mode)
			return setUp(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"netns": makeNetns, "endns": endNetns, "in": in, "serve": serve, "dhcpnet": dhcpNet, "dhcpd": dhcpDaemon, "needs": needs,
		},
		UpdateScripts: os.Getenv("UPDATE") != "",
	}
}

// setUp creates the host and expands $WORK in configurations.
func setUp(env *testscript.Env) error {
	t := env.T().(interface{ testing.TB })
	kerneltest.Host(t)
	env.Setenv("CNI_PATH", programs)
	env.Setenv("FAIRLEAD_RUN", filepath.Join(env.WorkDir, "run"))
	env.Values["testing"], env.Values["daemon"] = t, &runningDaemon{}
	sockets, err := os.MkdirTemp("", "dhcp-") // a socket's path must be short
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(sockets) })
	env.Setenv("DHCP_SOCKET", filepath.Join(sockets, "s"))
	files, err := filepath.Glob(filepath.Join(env.WorkDir, "*.conf*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(f, []byte(strings.NewReplacer("$WORK", env.WorkDir, "$DHCP_SOCKET", env.Getenv("DHCP_SOCKET")).Replace(string(raw))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func tb(ts *testscript.TestScript) testing.TB { return ts.Value("testing").(testing.TB) }

func makeNetns(ts *testscript.TestScript, _ bool, names []string) {
	for _, n := range names {
		ts.Setenv(n, kerneltest.Netns(tb(ts)))
	}
}

func needs(ts *testscript.TestScript, _ bool, features []string) {
	kerneltest.Needs(tb(ts), features...)
}

func endNetns(ts *testscript.TestScript, _ bool, names []string) {
	for _, n := range names {
		kerneltest.Gone(tb(ts), ts.Getenv(n))
	}
}

func in(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("nsenter", append([]string{"--net=" + ts.Getenv(args[0]), "--"}, args[1:]...)...)
	if (err != nil) != neg {
		ts.Fatalf("in %s: %v", strings.Join(args, " "), err)
	}
}

// serve starts a server and returns when it listens.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	argv := append([]string{"answer"}, args[1:]...)
	if args[0] != "host" {
		argv = append([]string{"nsenter", "--net=" + ts.Getenv(args[0]), "--"}, argv...)
	}
	path, err := exec.LookPath(argv[0])
	ts.Check(err)
	cmd := &exec.Cmd{Path: path, Args: argv, Env: append(os.Environ(), "PATH="+ts.Getenv("PATH"))}
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		ts.Fatalf("serve %s: %v", strings.Join(args, " "), err)
	}
}

func answerMain() {
	network, addr := os.Args[1], os.Args[2]
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, addr)
		fail(err)
		fmt.Println("ready")
		for b := make([]byte, 64); ; {
			_, peer, err := c.ReadFrom(b)
			fail(err)
			_, _ = c.WriteTo([]byte("hello "+peer.String()+" from "+hostname()), peer)
		}
	}
	l, err := net.Listen(network, addr)
	fail(err)
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		fail(err)
		_, _ = c.Write([]byte("hello " + c.RemoteAddr().String()))
		_ = c.Close()
	}
}

// hostname returns the first address of eth0, which identifies a server.
func hostname() string {
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		return "host"
	}
	addrs, err := i.Addrs()
	if err != nil || len(addrs) == 0 {
		return "nobody"
	}
	return addrs[0].String()
}

// answerTimeout returns how long an answer may take.
func answerTimeout() time.Duration { return kerneltest.Slow(2 * time.Second) }

func dialMain() {
	d := net.Dialer{Timeout: answerTimeout()}
	if len(os.Args) > 3 {
		from, err := net.ResolveUDPAddr(os.Args[1], os.Args[3])
		fail(err)
		d.LocalAddr = from
	}
	c, err := d.Dial(os.Args[1], os.Args[2])
	fail(err)
	fail(c.SetDeadline(time.Now().Add(answerTimeout())))
	_, err = c.Write([]byte("hello"))
	fail(err)
	b := make([]byte, 64)
	n, err := c.Read(b)
	fail(err)
	fmt.Println(string(b[:n]))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
