package dhcpd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// association is an IA_NA of a reply, with lifetimes of addresses in seconds.
type association struct {
	id     byte
	status iana.StatusCode
	addrs  []string
	valid  []time.Duration
}

// TestReplies reads replies of odd and hostile servers.
func TestReplies(t *testing.T) {
	t.Parallel()
	const want, other = "fd00::5", "fd00::6"
	one := func(valid time.Duration) association {
		return association{1, 0, []string{want}, []time.Duration{valid}}
	}
	for name, c := range map[string]struct {
		status          iana.StatusCode
		list            []association
		extend, request string // "": nothing about the address
		valid           time.Duration
	}{
		"extended":                   {0, []association{one(3600)}, "yes", "yes", 3600},
		"another association first":  {0, []association{{id: 9}, one(3600)}, "yes", "yes", 3600},
		"an old address first":       {0, []association{{1, 0, []string{other, want}, []time.Duration{0, 60}}}, "yes", "yes", 60},
		"another address first":      {0, []association{{1, 0, []string{other, want}, []time.Duration{9, 60}}}, "yes", "yes", 60},
		"withdrawn":                  {0, []association{one(0)}, "refused", "refused", 0},
		"another address":            {0, []association{{1, 0, []string{other}, []time.Duration{60}}}, "", "refused", 0},
		"an empty association":       {0, []association{{id: 1}}, "", "refused", 0},
		"no association":             {0, nil, "", "refused", 0},
		"another association":        {0, []association{{9, 0, []string{want}, []time.Duration{60}}}, "", "refused", 0},
		"the server fails":           {iana.StatusUnspecFail, nil, "", "refused", 0},
		"it fails, with the address": {iana.StatusUnspecFail, []association{one(60)}, "", "refused", 0},
		"the association fails":      {0, []association{{id: 1, status: iana.StatusUnspecFail}}, "", "refused", 0},
		"not on the link":            {0, []association{{id: 1, status: iana.StatusNotOnLink}}, "refused", "refused", 0},
		"no binding":                 {0, []association{{id: 1, status: iana.StatusNoBinding}}, "unknown", "refused", 0},
	} {
		m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}
		m.AddOption(dhcpv6.OptServerID(duid("server")))
		if c.status != 0 {
			m.AddOption(&dhcpv6.OptStatusCode{StatusCode: c.status})
		}
		for _, a := range c.list {
			ia := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, a.id}, T1: time.Second}
			if a.status != 0 {
				ia.Options.Add(&dhcpv6.OptStatusCode{StatusCode: a.status})
			}
			for i, addr := range a.addrs {
				ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(addr), ValidLifetime: a.valid[i] * time.Second})
			}
			m.AddOption(ia)
		}
		for extends, want := range map[bool]string{true: c.extend, false: c.request} {
			got := ""
			ia, info, err := answer6(m, netip.MustParseAddr("fd00::5"), extends)
			_, refused := errors.AsType[*refusal](err)
			_, unknown := errors.AsType[*noBinding](err)
			switch {
			case refused:
				got = "refused"
			case unknown:
				got = "unknown"
			case info != nil:
				got = "yes"
			}
			if got != want || got == "yes" && (info.ValidLifetime != c.valid*time.Second || ia.T1 != time.Second) {
				t.Errorf("%s, extends %v: %q, %+v, want %q", name, extends, got, info, want)
			}
		}
	}
}

// panicking is a protocol whose code panics when it is due.
type panicking struct{ v6 }

func (*panicking) renew(context.Context, *link, bool) error { panic("on purpose") }

// TestPanicOfOneLease checks that a panic is an error of its lease only.
func TestPanicOfOneLease(t *testing.T) {
	t.Parallel()
	var logged string
	l := &lease{d: &Daemon{o: Options{Log: func(line string) { logged += line }}}}
	err := l.contain(&panicking{}, func() error { return (&panicking{}).renew(t.Context(), nil, false) })
	if err == nil || err.Error() != "panic: on purpose" || logged == "" {
		t.Errorf("%v, logged %q", err, logged)
	}
}

// TestUnreadableLease checks that a daemon keeps a stored lease that it cannot read now. It removes one that is no lease.
func TestUnreadableLease(t *testing.T) {
	t.Parallel()
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	unreadable, broken := filepath.Join(s.dir, "n,c,eth0.json"), filepath.Join(s.dir, "n,d,eth0.json")
	if err := errors.Join(os.Mkdir(unreadable, 0o700), os.WriteFile(broken, []byte("{"), 0o600)); err != nil { // EISDIR
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(s.dir, "n,e,eth0.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, unread, err := s.list()
	if len(list) != 0 || len(unread) != 2 || err != nil {
		t.Errorf("%v, %v, %v", list, unread, err)
	}
	if _, err := os.Stat(unreadable); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(broken); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the broken file: %v", err)
	}
}
