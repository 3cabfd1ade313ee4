package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A fingerprint is a binary form of the snapshot: the kernel's own dump messages, without the fields that change by
// themselves. It takes a thirtieth of the time of the text. If two fingerprints differ, the texts are compared, and
// only their difference counts.

// dumper holds netlink sockets of the namespace in which its thread created it.
type dumper struct{ route, netfilter int }

func newDumper() (*dumper, error) {
	open := func(protocol int) (int, error) {
		return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	}
	r, err1 := open(unix.NETLINK_ROUTE)
	n, err2 := open(unix.NETLINK_NETFILTER)
	return &dumper{r, n}, errors.Join(err1, err2)
}

func (d *dumper) close() {
	_ = unix.Close(d.route)
	_ = unix.Close(d.netfilter)
}

// message is one answer: its fixed header and its attributes.
type message struct {
	head  []byte
	attrs []attr
}

type attr struct {
	typ  uint16
	data []byte
}

// dump requests all objects of a type.
func dump(fd int, typ uint16, body []byte, head int) (out []message, err error) {
	req := make([]byte, unix.NLMSG_HDRLEN, 64)
	le := binary.NativeEndian
	le.PutUint32(req, uint32(len(req)+len(body)))
	le.PutUint16(req[4:], typ)
	le.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, append(req, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	for buf := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size := int(le.Uint32(b))
			switch le.Uint16(b[4:]) {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				return out, refusal(b[unix.NLMSG_HDRLEN:size])
			}
			m := b[unix.NLMSG_HDRLEN:size]
			out = append(out, message{slices.Clone(m[:head]), attributes(slices.Clone(m[head:]))})
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// refusal returns the error at the start of the last message of a dump. A type that this kernel lacks is none.
func refusal(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b)))
	if errno == 0 || errno == unix.EOPNOTSUPP {
		return nil
	}
	return errno
}

func attributes(b []byte) (out []attr) {
	le := binary.NativeEndian
	for len(b) >= 4 {
		size := int(le.Uint16(b))
		if size < 4 || size > len(b) {
			return out
		}
		out = append(out, attr{le.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER), b[4:size]})
		b = b[min((size+3)&^3, len(b)):]
	}
	return out
}

func (m message) get(typ uint16) []byte {
	for _, a := range m.attrs {
		if a.typ == typ {
			return a.data
		}
	}
	return nil
}

// text returns the message without the given attributes.
func (m message) text(but ...uint16) string {
	b := slices.Clone(m.head)
	for _, a := range m.attrs {
		if !slices.Contains(but, a.typ) {
			b = append(binary.NativeEndian.AppendUint16(b, a.typ), a.data...)
		}
	}
	return string(b)
}

// fingerprint returns the fingerprint of the dumper's namespace. Sysctls are read from the calling thread's namespace.
func (d *dumper) fingerprint() (string, error) {
	var list []string
	var errs []error
	each := func(typ uint16, body []byte, head int, f func(message) string) {
		all, err := dump(d.route, typ, body, head)
		errs = append(errs, err)
		for _, m := range all {
			if s := f(m); s != "" {
				list = append(list, string(rune(typ))+s)
			}
		}
	}
	var devices []uint32
	each(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), unix.SizeofIfInfomsg, func(m message) string {
		flags := binary.NativeEndian.Uint32(m.head[8:]) &^ (unix.IFF_RUNNING | unix.IFF_LOWER_UP)
		binary.NativeEndian.PutUint32(m.head[8:], flags)
		devices = append(devices, binary.NativeEndian.Uint32(m.head[4:]))
		return m.text(unix.IFLA_STATS, unix.IFLA_STATS64, unix.IFLA_CARRIER, unix.IFLA_CARRIER_CHANGES, unix.IFLA_CARRIER_UP_COUNT,
			unix.IFLA_CARRIER_DOWN_COUNT, unix.IFLA_OPERSTATE, unix.IFLA_LINKINFO, unix.IFLA_AF_SPEC, unix.IFLA_PROTINFO)
	})
	each(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), unix.SizeofIfAddrmsg, func(m message) string {
		if linkLocal(m.get(unix.IFA_ADDRESS)) {
			return ""
		}
		return m.text(unix.IFA_CACHEINFO)
	})
	each(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg), unix.SizeofRtMsg, func(m message) string {
		if linkLocal(m.get(unix.RTA_DST)) {
			return ""
		}
		flags := binary.NativeEndian.Uint32(m.head[8:]) &^ (unix.RTNH_F_LINKDOWN | unix.RTNH_F_DEAD)
		binary.NativeEndian.PutUint32(m.head[8:], flags)
		return m.text(unix.RTA_CACHEINFO)
	})
	each(unix.RTM_GETRULE, make([]byte, unix.SizeofRtMsg), unix.SizeofRtMsg, func(m message) string { return m.text() })
	each(unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg), unix.SizeofNdMsg, func(m message) string {
		if binary.NativeEndian.Uint16(m.head[8:])&unix.NUD_PERMANENT == 0 {
			return ""
		}
		return m.text(unix.NDA_CACHEINFO, unix.NDA_PROBES)
	})
	const sizeofTcmsg = 20
	tc := func(m message) string { return m.text(unix.TCA_STATS, unix.TCA_STATS2) }
	each(unix.RTM_GETQDISC, make([]byte, sizeofTcmsg), sizeofTcmsg, tc)
	for _, dev := range devices {
		for _, parent := range []uint32{0, 0xffff0000} { // root, ingress
			body := make([]byte, sizeofTcmsg)
			binary.NativeEndian.PutUint32(body[4:], dev)
			binary.NativeEndian.PutUint32(body[12:], parent)
			each(unix.RTM_GETTFILTER, body, sizeofTcmsg, filter)
		}
	}
	n, err := d.rules()
	slices.Sort(list)
	return strings.Join(append(list, n...), "\n") + changedSysctls(), errors.Join(append(errs, err)...)
}

// filter returns a filter without the counters and times of its actions, which bandwidth's u32 filters have.
func filter(m message) string {
	if string(bytes.TrimRight(m.get(unix.TCA_KIND), "\x00")) != "u32" {
		return m.text()
	}
	const u32Actions, u32Counters, actionOptions, actionStats, mirredTimes = 7, 9, 2, 4, 1 // linux/pkt_cls.h, linux/tc_act/tc_mirred.h
	nested := func(b []byte) message { return message{attrs: attributes(b)} }
	options := nested(m.get(unix.TCA_OPTIONS))
	s := m.text(unix.TCA_OPTIONS) + options.text(u32Actions, u32Counters)
	for _, a := range attributes(options.get(u32Actions)) {
		action := nested(a.data)
		s += action.text(actionOptions, actionStats) + nested(action.get(actionOptions)).text(mirredTimes)
	}
	return s
}

// linkLocal reports whether an address is link-local or multicast. Such addresses come and go with the carrier.
func linkLocal(a []byte) bool {
	return len(a) == 16 && (a[0] == 0xfe && a[1] == 0x80 || a[0] == 0xff)
}

// rules returns the tables, chains, rules, sets and elements of nftables.
func (d *dumper) rules() (list []string, err error) {
	const sizeofNfgenmsg = 4
	body := make([]byte, sizeofNfgenmsg)
	for _, typ := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETOBJ} {
		all, err := dump(d.netfilter, unix.NFNL_SUBSYS_NFTABLES<<8|typ, body, sizeofNfgenmsg)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			m.head[2], m.head[3] = 0, 0 // clear the generation ID
			list = append(list, string(rune(typ))+m.text())
			if typ != unix.NFT_MSG_GETSET {
				continue
			}
			// NFTA_SET_TABLE and NFTA_SET_NAME have the values of NFTA_SET_ELEM_LIST_TABLE and NFTA_SET_ELEM_LIST_SET.
			request := []byte{m.head[0], 0, 0, 0}
			for i, name := range [][]byte{m.get(unix.NFTA_SET_TABLE), m.get(unix.NFTA_SET_NAME)} {
				request = binary.NativeEndian.AppendUint16(request, uint16(4+len(name)))
				request = binary.NativeEndian.AppendUint16(request, uint16(i+1))
				request = append(request, name...)
				request = append(request, make([]byte, -len(name)&3)...)
			}
			elements, err := dump(d.netfilter, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, request, sizeofNfgenmsg)
			if err != nil {
				return nil, err
			}
			for _, e := range elements {
				e.head[2], e.head[3] = 0, 0
				list = append(list, e.text())
			}
		}
	}
	return list, nil
}

// changedSysctls returns the sysctls that the plugins and the scenes' configurations write. The text snapshot has all
// sysctls.
func changedSysctls() string {
	var b strings.Builder
	read := func(path string) {
		if raw, err := readAt(path); err == nil {
			b.WriteString(path + string(raw) + "\n")
		}
	}
	read("/proc/sys/net/ipv4/ip_forward")
	read("/proc/sys/net/core/somaxconn")
	for _, f := range [][]string{
		{"ipv4", "forwarding", "arp_notify", "arp_filter", "rp_filter", "route_localnet", "proxy_arp"},
		{"ipv6", "forwarding", "force_forwarding", "accept_ra", "accept_dad", "disable_ipv6", "ndisc_notify", "addr_gen_mode", "keep_addr_on_down"},
	} {
		dir := "/proc/sys/net/" + f[0] + "/conf/"
		devs, _ := os.ReadDir(dir)
		for _, dev := range devs {
			for _, key := range f[1:] {
				read(dir + dev.Name() + "/" + key)
			}
		}
	}
	return b.String()
}
