package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Probe sends a packet per millisecond from a container to an address, until Stop.
type Probe struct {
	cmd  *exec.Cmd
	out  answers
	done chan struct{}
}

// answers counts the lines of ping's output, one per answer, and keeps the end.
type answers struct {
	sync.Mutex
	count int
	tail  []byte
}

func (a *answers) Write(b []byte) (int, error) {
	a.Lock()
	defer a.Unlock()
	a.count += bytes.Count(b, []byte(" bytes from "))
	a.tail = append(a.tail, b...)
	a.tail = a.tail[max(0, len(a.tail)-2000):]
	return len(b), nil
}

func (a *answers) seen() (int, string) {
	a.Lock()
	defer a.Unlock()
	return a.count, string(a.tail)
}

// Lost is the result of a probe.
type Lost struct{ Sent, Lost int }

func (l Lost) String() string { return fmt.Sprintf("%d of %d packets lost", l.Lost, l.Sent) }

// Probe starts a probe in a container of the node.
func (n *Node) Probe(container string, to netip.Addr) (*Probe, error) {
	p := &Probe{}
	p.cmd = n.Command(context.Background(), "ip", "netns", "exec", container, "ping", "-i", "0.001", "-W", "1", to.String())
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.done = make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(p.done) }() // ping exits with 1 after a loss
	n.atEnd(p.kill)
	return p, nil
}

func (p *Probe) kill() {
	select {
	case <-p.done: // another process may have the PID now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// Answers returns the number of answers so far, or an error if the probe has ended.
func (p *Probe) Answers() (int, error) {
	count, output := p.out.seen()
	select {
	case <-p.done:
		return count, fmt.Errorf("the probe has ended: %s", output)
	default:
		return count, nil
	}
}

var (
	summary  = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)
	answered = regexp.MustCompile(`bytes from .*icmp_seq=(\d+) `)
)

// inFlight limits the packets at the end that count as in flight: ping does not wait for their answers.
const inFlight = 20

// Stop stops the probe and returns the result. The packets after the last answer were in flight.
func (p *Probe) Stop() (Lost, error) {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
	_, output := p.out.seen()
	m := summary.FindStringSubmatch(output)
	if m == nil {
		return Lost{}, fmt.Errorf("the probe printed nothing: %s", output)
	}
	sent, _ := strconv.Atoi(m[1])
	received, _ := strconv.Atoi(m[2])
	if all := answered.FindAllStringSubmatch(output, -1); len(all) > 0 {
		last, _ := strconv.Atoi(all[len(all)-1][1])
		if flying := int(uint16(sent) - uint16(last)); flying < inFlight { // ping counts in 16 bits
			sent -= flying
		}
	}
	return Lost{sent, sent - received}, nil
}

// Ping sends a few packets from a container and returns an error unless all are answered.
func (n *Node) Ping(ctx context.Context, container string, to netip.Addr) error {
	_, err := n.Run(ctx, "ip", "netns", "exec", container, "ping", "-q", "-c", "2", "-i", "0.01", "-W", "1", to.String())
	return err
}
