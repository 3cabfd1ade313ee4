package scenario

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const (
	payloadSize = 1000             // bytes of payload
	frameSize   = payloadSize + 42 // with UDP, IPv4 and Ethernet headers
	warmUpTime  = 1500 * time.Millisecond
	measureTime = 2 * time.Second
)

// TestBandwidthAccuracy sends datagrams at more than twice the rate, in both directions at once. The received rate,
// counted in bytes on the link, is within 5% of the configured one.
func TestBandwidthAccuracy(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		rate       float64 // bits per second
		limited    bool
	}{
		{"as in the example", `"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000`, 1e6, true},
		{"rate without burst", `"ingressRate": 20000000, "egressRate": 20000000`, 20e6, true},
		{"from runtimeConfig", `"capabilities": {"bandwidth": true}`, 50e6, true},
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
				if out, err := m.cni(verb, conf, "a", "", "", `CAP_ARGS={"bandwidth": {"ingressRate": 50000000, "egressRate": 50000000}}`); err != nil {
					t.Fatalf("%s: %s", verb, out)
				}
			}
			// On a busy machine the sender may be too slow, but the limit never lets too much through.
			for start := time.Now(); ; {
				in, out := m.measureRates(tt.rate)
				t.Logf("fraction of %.0f Mbit/s: in %.3f, out %.3f", tt.rate/1e6, in, out)
				if tt.limited && max(in, out) > 1.05 {
					t.Errorf("more than the limit arrived: in %.3f, out %.3f", in, out)
				}
				if least := map[bool]float64{true: 0.95, false: 1.5}[tt.limited]; min(in, out) >= least {
					break
				} else if time.Since(start) > kerneltest.Slow(20*time.Second) {
					t.Errorf("less than %.2f of the limit arrived: in %.3f, out %.3f", least, in, out)
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

// measureRates returns the received rates of both directions, measured at the same time, as fractions of the configured
// rate.
func (m *machine) measureRates(rate float64) (in, out float64) {
	host := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	to := m.transfer(host, m.Netns["a"], "10.1.0.2:9", rate)
	from := m.transfer(m.Netns["a"], host, "10.1.0.1:9", rate)
	return <-to / rate, <-from / rate
}

// transfer sends datagrams from one namespace to an address of another. It reports the bits per second that arrive once
// the token bucket is empty.
func (m *machine) transfer(from, to, addr string, rate float64) <-chan float64 {
	m.T.Helper()
	l := socket(m.T, to, func() (net.Conn, error) {
		a, _ := net.ResolveUDPAddr("udp", addr)
		return net.ListenUDP("udp", a)
	})
	c := socket(m.T, from, func() (net.Conn, error) { return net.Dial("udp", addr) })
	ctx, cancel := context.WithTimeout(m.T.Context(), warmUpTime+measureTime+5*time.Second)
	go sendAtRate(ctx, c, rate*2.2)
	arrived := make(chan float64, 1)
	go func() {
		defer cancel()
		arrived <- measureRate(l)
	}()
	return arrived
}

// sendAtRate sends at a constant rate until the context ends.
func sendAtRate(ctx context.Context, c net.Conn, rate float64) {
	defer c.Close()
	start, sent := time.Now(), 0.0
	for ctx.Err() == nil {
		for due := time.Since(start).Seconds() * rate / 8; sent < due; sent += frameSize {
			_, _ = c.Write(make([]byte, payloadSize)) // a full queue drops the datagram
		}
		time.Sleep(time.Millisecond)
	}
}

func measureRate(l net.Conn) float64 {
	defer l.Close()
	b := make([]byte, 2048)
	start, n := time.Now(), 0
	_ = l.SetReadDeadline(start.Add(warmUpTime + measureTime))
	var first, last time.Time
	for {
		if _, err := l.Read(b); err != nil {
			break
		}
		last = time.Now()
		switch {
		case last.Sub(start) < warmUpTime:
		case first.IsZero():
			first = last
		default:
			n++
		}
	}
	return float64(n) * frameSize * 8 / last.Sub(first).Seconds()
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
