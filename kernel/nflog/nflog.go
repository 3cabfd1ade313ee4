package nflog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Listener receives the packets of one group in the network namespace that it was opened in.
type Listener struct {
	stream *netlink.Stream
}

// ErrNoSupport reports that the kernel has no log groups.
var ErrNoSupport = errors.New("this kernel has no nfnetlink_log") // a constant; nothing assigns it

const (
	copied  = 256     // bytes of each packet: its headers
	atOnce  = 20      // packets that the kernel collects for one message
	delay   = 10      // hundredths of a second that it waits for them
	buffer  = 1 << 20 // bytes of messages that wait for the listener
	config  = 1       // NFULNL_MSG_CONFIG
	bind    = 1       // NFULNL_CFG_CMD_BIND
	copying = 2       // NFULNL_COPY_PACKET
	count   = 1       // NFULNL_CFG_F_SEQ: number the packets
	ulog    = unix.NFNL_SUBSYS_ULOG << 8
)

// Attributes of a configuration.
const (
	cfgCmd = iota + 1
	cfgMode
	_
	cfgTimeout
	cfgThreshold
	cfgFlags
)

// Open listens to a group in the namespace of the calling thread. A group has one listener: the error names the process
// of another one if it can. It is ErrNoSupport if the kernel has no log groups.
func Open(group uint16) (*Listener, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, make([]byte, netlink.BufferSize))
	if err != nil {
		return nil, err
	}
	resp, err := c.Do([]netlink.Request{{Type: ulog | config, Flags: unix.NLM_F_ACK, Body: configuration(group)}})
	if err == nil {
		err = resp[0].Err
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("receive packets of the netfilter log group %d: %w", group, openError(group, err))
	}
	s, err := c.Stream(buffer)
	return &Listener{s}, err
}

// openError explains an error of the kernel. A kernel without the subsystem answers EINVAL. EPERM means that the group has
// another listener, or that the caller lacks CAP_NET_ADMIN.
func openError(group uint16, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL):
		return ErrNoSupport
	case errors.Is(err, unix.EPERM):
		if port := listener(group); port != "" {
			return fmt.Errorf("%s receives them", program(port))
		}
	}
	return err
}

// listener returns the port ID of the socket that listens to a group, "" if there is none.
func listener(group uint16) string {
	raw, _ := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_log") // without it, nobody is named
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == fmt.Sprint(group) {
			return f[1]
		}
	}
	return ""
}

// program describes the owner of a socket. The port ID of the first netlink socket of a process is the ID of the process.
func program(port string) string {
	name, err := os.ReadFile("/proc/" + port + "/comm")
	if err != nil {
		return "another program"
	}
	return fmt.Sprintf("process %s (%s)", port, strings.TrimSpace(string(name)))
}

func configuration(group uint16) netlink.Buffer {
	b := netlink.Buffer{unix.AF_UNSPEC, unix.NFNETLINK_V0}
	b = binary.BigEndian.AppendUint16(b, group)
	b.Uint8(cfgCmd, bind)
	b.Bytes(cfgMode, append(binary.BigEndian.AppendUint32(nil, copied), copying, 0)) // struct nfulnl_msg_config_mode
	b.Uint32BE(cfgTimeout, delay)
	b.Uint32BE(cfgThreshold, atOnce)
	b.Uint16BE(cfgFlags, count)
	return b
}

// Close ends the listener and Run.
func (l *Listener) Close() { l.stream.Close() }

// Run calls f with each packet until the context ends. lost is the number of packets before it that did not fit the
// buffer.
func (l *Listener) Run(ctx context.Context, f func(p *Packet, lost int)) error {
	defer context.AfterFunc(ctx, l.Close)()
	var next uint32
	for {
		list, err := l.stream.Receive()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, netlink.ErrMissed) { // the numbers tell what is missing
			return err
		}
		for _, m := range list {
			p, err := parse(m)
			if err != nil {
				continue // not a packet
			}
			f(p, int(p.number-next))
			next = p.number + 1
		}
	}
}
