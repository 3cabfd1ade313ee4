package scenario

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	payloadSize = 1000             // bytes of payload
	frameSize   = payloadSize + 42 // with UDP, IPv4 and Ethernet headers
	measureTime = 2 * time.Second
	briefTime   = measureTime / 4
	surplus     = 2e6 // bits sent above the limit; more than any burst in these tests, so that the token bucket is empty
)

// overload is the sent rate as a multiple of the limit. The sender needs little of a processor, because other tests use it, too.
const overload = 1.8

// TestBandwidthAccuracy sends datagrams at more than the rate, in both directions at once. The received rate, counted in
// bytes on the link, is within 5% of the configured one.
func TestBandwidthAccuracy(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		rate       float64 // bits per second
		limited    bool
	}{
		{"as in the example", `"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000`, 1e6, true},
		{"rate without burst", `"ingressRate": 20000000, "egressRate": 20000000`, 20e6, true},
		{"from runtimeConfig", `"capabilities": {"bandwidth": true}`, 10e6, true},
		{"shaped subnets", `"ingressRate": 8000000, "egressRate": 8000000, "shapedSubnets": ["10.1.0.0/24", "fd00::/64"]`, 8e6, true},
		{"traffic to unshaped subnets", `"ingressRate": 1000000, "egressRate": 1000000, "unshapedSubnets": ["10.1.0.0/24"]`, 8e6, false},
		{"at the container", `"egressAt": "container", "ingressRate": 20000000, "egressRate": 20000000`, 20e6, true},
		{"at the container, shaped subnets", `"egressAt": "container", "ingressRate": 8000000, "egressRate": 8000000, "shapedSubnets": ["10.1.0.0/24"]`, 8e6, true},
		{"traffic to other than the unshaped subnets", `"ingressRate": 8000000, "egressRate": 8000000, "unshapedSubnets": ["10.7.0.0/24", "fd00::/64"]`, 8e6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "isGateway": true, $IPAM}, {"type": "bandwidth", ` + tt.keys + `}]}`
			for _, verb := range []string{"add", "check"} {
				if out, err := m.cni(verb, conf, "a", "", "", `CAP_ARGS={"bandwidth": {"ingressRate": 10000000, "egressRate": 10000000}}`); err != nil {
					t.Fatalf("%s: %s", verb, out)
				}
			}
			// On a busy machine the sender may be too slow, but the limit never lets too much through.
			for start := time.Now(); ; {
				in, out := m.measureRates(tt.rate)
				t.Logf("fraction of %.0f Mbit/s: in %.3f, at best %.3f; out %.3f, at best %.3f", tt.rate/1e6, in.mean, in.best, out.mean, out.best)
				if tt.limited && max(in.mean, out.mean) > 1.05 {
					t.Errorf("more than the limit arrived: in %.3f, out %.3f", in.mean, out.mean)
				}
				if least := map[bool]float64{true: 0.95, false: 1.3}[tt.limited]; min(in.best, out.best) >= least {
					break
				} else if time.Since(start) > kerneltest.Slow(20*time.Second) {
					t.Errorf("less than %.2f of the limit arrived: at best in %.3f, out %.3f", least, in.best, out.best)
					break
				}
			}
			if out, err := m.cni("del", conf, "a", "", "", ""); err != nil {
				t.Errorf("del: %s", out)
			}
			if left := kerneltest.Run(t, "ip", "-br", "link", "show", "type", "ifb"); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// received is a received rate, as a fraction of the configured one: of the whole time, and of the best briefTime in it, in
// which the sender waited least for a processor.
type received struct{ mean, best float64 }

// measureRates returns the received rates of both directions, measured at the same time.
func (m *machine) measureRates(rate float64) (in, out received) {
	host := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	to := m.transfer(host, m.Netns["a"], "10.1.0.2:9", rate)
	from := m.transfer(m.Netns["a"], host, "10.1.0.1:9", rate)
	return <-to, <-from
}

// transfer sends datagrams from one namespace to an address of another. It reports what arrives once the token bucket
// is empty, or nothing if the sender is too slow to empty it.
func (m *machine) transfer(from, to, addr string, rate float64) <-chan received {
	m.T.Helper()
	l := socket(m.T, to, func() (net.Conn, error) { return listen(addr) })
	c := socket(m.T, from, func() (net.Conn, error) { return dial(addr) })
	ctx, cancel := context.WithTimeout(m.T.Context(), kerneltest.Slow(10*time.Second))
	empty, arrived := make(chan time.Time, 1), make(chan received, 1)
	go sendAboveRate(ctx, c, rate, empty)
	go func() {
		defer l.Close()
		defer cancel()
		select {
		case start := <-empty:
			arrived <- rateOf(arrivals(l, start), start, rate)
		case <-ctx.Done():
			arrived <- received{}
		}
	}()
	return arrived
}

// sendAboveRate sends at a constant multiple of a rate until the context ends. It reports when it has sent the surplus.
func sendAboveRate(ctx context.Context, c net.Conn, rate float64, empty chan<- time.Time) {
	defer c.Close()
	start, sent := time.Now(), 0.0 // bits
	for ctx.Err() == nil {
		for due := time.Since(start).Seconds() * rate * overload; sent < due; sent += frameSize * 8 {
			_, _ = c.Write(make([]byte, payloadSize)) // a full queue drops the datagram
		}
		if now := time.Now(); sent-now.Sub(start).Seconds()*rate > surplus {
			select {
			case empty <- now:
			default: // reported already
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// arrivals returns the times after start at which the kernel received datagrams: this process may wait for a processor.
func arrivals(l net.Conn, start time.Time) (list []time.Time) {
	b, control := make([]byte, 2048), make([]byte, 128)
	_ = l.SetReadDeadline(start.Add(measureTime))
	for {
		_, size, _, _, err := l.(*net.UDPConn).ReadMsgUDP(b, control)
		if err != nil {
			return list
		}
		if at := arrivalTime(control[:size]); at.After(start) {
			list = append(list, at)
		}
	}
}

// rateOf computes a rate from the times at which datagrams arrived since the token bucket was empty.
func rateOf(arrived []time.Time, empty time.Time, rate float64) (r received) {
	fraction := func(n int, from, to time.Time) float64 {
		return float64(n) * frameSize * 8 / to.Sub(from).Seconds() / rate
	}
	for i, from := range arrived {
		r.mean = fraction(i, empty, from)
		after := slices.IndexFunc(arrived[i:], func(at time.Time) bool { return at.Sub(from) >= briefTime })
		if after > 0 {
			r.best = max(r.best, fraction(after, from, arrived[i+after]))
		}
	}
	return r
}

// listen returns a socket whose datagrams have the time of their arrival, and whose queue is long enough for a reader that
// waits.
func listen(addr string) (net.Conn, error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	c, err := net.ListenUDP("udp", a)
	if err != nil {
		return nil, err
	}
	return c, set(c, map[int]int{unix.SO_RCVBUFFORCE: 8 << 20, unix.SO_TIMESTAMPNS: 1})
}

// dial returns a socket that never waits for a full queue.
func dial(addr string) (net.Conn, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return nil, err
	}
	return c, set(c.(*net.UDPConn), map[int]int{unix.SO_SNDBUFFORCE: 32 << 20})
}

// set sets options of a socket.
func set(c *net.UDPConn, options map[int]int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var errs []error
	err = raw.Control(func(fd uintptr) {
		for option, value := range options {
			errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, value))
		}
	})
	return errors.Join(append(errs, err)...)
}

// arrivalTime returns a datagram's time of arrival from its control messages (socket(7): SO_TIMESTAMPNS).
func arrivalTime(control []byte) time.Time {
	list, err := unix.ParseSocketControlMessage(control)
	for _, m := range list {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	panic(fmt.Sprintf("no time of arrival: %v, %v", list, err))
}

// socket opens a socket in a namespace. Any goroutine can use it.
func socket(t testing.TB, netns string, open func() (net.Conn, error)) (c net.Conn) {
	t.Helper()
	err := kerneltest.Inside(netns, func() (err error) {
		c, err = open()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
