package local

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/ipam"
)

// Cooled is a released address with its release time on the clock of ipam.Uptime.
type Cooled struct {
	Addr netip.Addr
	At   time.Duration
}

// Cool records that addresses are released now. The file is only a hint: losing it means that addresses are reused
// sooner. The caller must hold the network's lock.
func (d Dir) Cool(network string, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	f, err := os.OpenFile(d.coolingFile(network), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("record released addresses: %w", err)
	}
	defer f.Close()
	_, err = f.WriteString(coolingText(addrs, ipam.Uptime()))
	return err
}

func coolingText(addrs []netip.Addr, at time.Duration) string {
	var b strings.Builder
	for _, a := range addrs {
		b.WriteString(a.String() + " " + strconv.FormatInt(int64(at), 10) + "\n")
	}
	return b.String()
}

// Cooling returns the addresses released within the given time, oldest first. The caller must hold the network's lock.
func (d Dir) Cooling(network string, within time.Duration) ([]Cooled, error) {
	raw, err := plainfile.Read(d.coolingFile(network))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the released addresses: %w", err)
	}
	all, lines := cooling(string(raw), ipam.Uptime(), within)
	if lines > 64 && lines > 4*len(all) {
		d.forgetCooled(network, all)
	}
	return all, nil
}

// forgetCooled rewrites the file without expired entries.
func (d Dir) forgetCooled(network string, all []Cooled) {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(coolingText([]netip.Addr{c.Addr}, c.At))
	}
	_ = Replace(d.coolingFile(network), []byte(b.String()), 0o600) // on failure the file stays long but correct
}

// cooling parses the file: one address and time per line. It skips malformed lines, which an interrupted write leaves,
// and times in the future, which are from an earlier boot.
func cooling(text string, now, within time.Duration) (out []Cooled, lines int) {
	last := map[netip.Addr]time.Duration{}
	for line := range strings.Lines(text) {
		lines++
		name, stamp, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		a, err1 := netip.ParseAddr(name)
		at, err2 := strconv.ParseInt(stamp, 10, 64)
		if err1 != nil || err2 != nil || at < 0 {
			continue
		}
		last[a] = time.Duration(at)
	}
	for a, at := range last {
		if at <= now && now-at < within {
			out = append(out, Cooled{a, at})
		}
	}
	slices.SortFunc(out, func(x, y Cooled) int {
		if x.At != y.At {
			return int(min(max(x.At-y.At, -1), 1))
		}
		return x.Addr.Compare(y.Addr)
	})
	return out, lines
}
