// Command path measures the data-path overhead of Fairlead's rules and links. It compares with the reference plugins
// and with the same topology created manually, in turn. It measures throughput (iperf3), request-response rates and new
// connections: from pod to pod, from outside to a host port, and out through masquerade. It repeats them with the
// elements and rules of thousands of other containers.
//
//	go run ./bench/path [-hosts [-backend NAME] | -bridges] [-n ROUNDS] [-for TIME] [-others NUMBER] [-what THING] [-programs DIRECTORY [-build]] [-json FILE] [-write FILE]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "ask") {
		if err := traffic(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "path:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.rounds, "n", 15, "rounds of each case")
	flag.DurationVar(&o.time, "for", 500*time.Millisecond, "length of one measurement; iperf3's are two seconds at least")
	flag.IntVar(&o.others, "others", 10000, "containers whose elements and rules are added for the second half")
	flag.StringVar(&o.programs, "programs", "", "use the programs in this `directory`, which -build filled")
	flag.BoolVar(&o.build, "build", false, "build the programs into the directory of -programs, and measure nothing")
	flag.StringVar(&o.what, "what", "", "measure only this: stream, rr or connect")
	flag.BoolVar(&o.hosts, "hosts", false, "measure between two hosts, with each agent backend that this kernel supports")
	flag.BoolVar(&o.bridges, "bridges", false, "measure ways in which packets between two ports of a bridge pass the host's rules")
	flag.StringVar(&o.backend, "backend", "", "measure only this backend")
	flag.StringVar(&o.json, "json", "", "write the figures as JSON to this `file`")
	flag.StringVar(&o.page, "write", "", "write the page to this `file`")
	flag.Parse()
	work := run
	if os.Getenv(insideVariable) == "" {
		work = enter
	}
	if o.build {
		work = func(o options) error { return build(o.programs) }
	}
	if err := work(o); err != nil {
		fmt.Fprintln(os.Stderr, "path:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds, others   int
	time             time.Duration
	what, json, page string
	programs         string
	backend          string
	build, hosts     bool
	bridges          bool
}

// insideVariable is the directory of the built programs, for the process inside its own namespaces.
const insideVariable = "FAIRLEAD_BENCH"

// enter builds the programs and runs this program again in its own network namespace, with its own mounts over /run.
func enter(o options) error {
	dir := o.programs
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "fairlead-path"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if !o.hosts { // measurements between hosts need no plugins
			err = build(dir)
		}
		if err != nil {
			return err
		}
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, // servers end with the process namespace
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd.Run()
}

func run(o options) error {
	runtime.LockOSThread()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("needs root: %w", err)
	}
	for dir, typ := range map[string]string{"/run": "tmpfs", "/proc": "proc"} {
		if err := syscall.Mount(typ, dir, typ, 0, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", dir, err)
		}
	}
	if o.hosts {
		rows, err := betweenHosts(o)
		if err != nil {
			return err
		}
		return report(rows, o, hostsPage)
	}
	list := hosts()
	if o.bridges {
		list = bridges()
	}
	hosts, err := prepare(list)
	if err != nil {
		return err
	}
	var rows []row
	for _, c := range cases(o.what) {
		r, err := measure(hosts, c, o, 0)
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	if rows, err = measureWithCopies(hosts, o, rows); err != nil {
		return err
	}
	return report(rows, o, page)
}

// measureWithCopies repeats the measurements that rules affect, with the copies in place.
func measureWithCopies(hosts []host, o options, rows []row) ([]row, error) {
	for _, h := range hosts {
		fmt.Fprintf(os.Stderr, "%s: %d others\n", h.name, o.others)
		if err := h.crowd(o.others); err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
	}
	for _, c := range cases(o.what) {
		if !c.ruled {
			continue
		}
		r, err := measure(hosts, c, o, o.others)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

func report(rows []row, o options, page string) error {
	text := table(rows)
	fmt.Print(text)
	if o.json != "" {
		raw, err := json.MarshalIndent(rows, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.page == "" {
		return nil
	}
	return os.WriteFile(o.page, []byte(strings.NewReplacer("$ROUNDS", fmt.Sprint(o.rounds), "$TIME", o.time.String(), "$TABLE", text,
		"$CPUS", fmt.Sprint(runtime.NumCPU()), "$KERNEL", kernelVersion(), "$GO", runtime.Version(), "$MOMENT", figures.Moment()).Replace(page)), 0o644)
}

func kernelVersion() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/osrelease") // only text for the page, so an error does not matter
	version, _, _ := strings.Cut(strings.TrimSpace(string(raw)), "-")
	return version
}
