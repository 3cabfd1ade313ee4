package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/netnspath"
)

// inspect lists and checks the attachments, and breaks one in between.
func (s *stage) inspect(ctx context.Context) error {
	out, took, err := s.fairlead(ctx, nil, "list")
	if err != nil {
		return err
	}
	s.command("fairlead list", "", took)
	for l := range strings.Lines(out) {
		s.text("  " + s.paint(green, strings.TrimRight(l, "\n")))
	}
	for _, c := range s.cast {
		if c.network == "dbnet-single" {
			continue
		}
		if _, took, err = s.fairlead(ctx, nil, "check", c.network, c.name); err != nil {
			return err
		}
		s.command("fairlead check "+c.network+" "+c.name, "unchanged", took)
	}
	s.note("dbnet-single is in version 0.3.1 of the specification; CHECK came with 0.4.0.")
	return s.breakAndFix(ctx)
}

// breakAndFix verifies that check reports a missing route.
func (s *stage) breakAndFix(ctx context.Context) error {
	const del, add = "ip -n client route del default", "ip -n client route add default via 10.244.0.1 dev eth0"
	if err := s.tool(ctx, del); err != nil {
		return err
	}
	s.command(del, "", 0)
	_, took, err := s.fairlead(ctx, nil, "check", "my-network", "client")
	if err == nil {
		return errors.New("check did not see that client's default route is missing")
	}
	s.command("fairlead check my-network client", "", took)
	problem := regexp.MustCompile(`container: ip route[^\n]*is missing`).FindString(err.Error())
	if problem == "" {
		return fmt.Errorf("check did not name the missing route: %w", err)
	}
	s.text("  " + s.paint(red, problem))
	if err := s.tool(ctx, add); err != nil {
		return err
	}
	s.command(add, "", 0)
	if _, took, err = s.fairlead(ctx, nil, "check", "my-network", "client"); err != nil {
		return err
	}
	s.command("fairlead check my-network client", "unchanged", took)
	return nil
}

func (s *stage) detach(ctx context.Context) error {
	for _, c := range s.cast {
		_, took, err := s.fairlead(ctx, nil, "del", c.network, c.name)
		if err != nil {
			return err
		}
		s.command("fairlead del "+c.network+" "+c.name, "gone", took)
	}
	if answer, _, err := s.dial(world, hostAddress+":8080"); err == nil {
		return fmt.Errorf("the host port still answers after del: %q", answer)
	}
	s.row("world   → "+hostAddress+":8080", "no answer any more", 0)
	return nil
}

// everything returns the state of the host and of the containers.
func (s *stage) everything(ctx context.Context) (snapshot, error) {
	all, err := ask(ctx, nil, "host: ", hostQuestions())
	if err != nil {
		return nil, err
	}
	for _, c := range s.cast {
		in, err := ask(ctx, s.netns[c.name], c.name+": ", containerQuestions())
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	state, err := files(netnspath.Dir, "/run", "/var/lib")
	return append(all, state...), err
}

// compare verifies that only shared objects are left. Then it removes these and compares again.
func (s *stage) compare(ctx context.Context) error {
	now, err := s.everything(ctx)
	if err != nil {
		return err
	}
	left, gone := now.minus(s.clean), s.clean.minus(now)
	traces := slices.DeleteFunc(slices.Clone(left), shared)
	// The line with forwarding off is gone because forwarding is on now.
	gone = slices.DeleteFunc(gone, func(l string) bool { return strings.Contains(l, "ip_forward") })
	if len(traces)+len(gone) > 0 {
		return fmt.Errorf("del left a trace:\n+ %s\n- %s", strings.Join(traces, "\n+ "), strings.Join(gone, "\n- "))
	}
	s.row("of the attachments", "nothing is left", 0)
	s.row("shared, stays as with the reference", "bridges, nft chains, forwarding", 0)
	if err := s.tidy(ctx); err != nil {
		return err
	}
	s.command("ip link del cni0; ...", "removed what was shared", 0)
	if now, err = s.everything(ctx); err != nil {
		return err
	}
	if more, less := now.minus(s.clean), s.clean.minus(now); len(more)+len(less) > 0 {
		return fmt.Errorf("not as before:\n+ %s\n- %s", strings.Join(more, "\n+ "), strings.Join(less, "\n- "))
	}
	s.row("before the first add, and now", fmt.Sprintf("identical, all %d lines", len(now)), 0)
	return s.dismiss(ctx)
}

// shared reports whether a line describes an object that attachments share.
func shared(line string) bool {
	if path, ok := strings.CutPrefix(line, "file: "); ok {
		_, err := netip.ParseAddr(filepath.Base(path))
		return err != nil && strings.HasPrefix(path, "/var/lib/cni/networks/")
	}
	if strings.Contains(line, "table inet fairlead") {
		// An owner tag has words. The comment of a shared rule has a number.
		return !regexp.MustCompile(`comment "fairlead [^#]|elements = `).MatchString(line)
	}
	return regexp.MustCompile(`\b(cni[012]|minicni0)\b|ip_forward = 1`).MatchString(line) && strings.HasPrefix(line, "host: ")
}

// dismiss removes the containers and the outside network.
func (s *stage) dismiss(ctx context.Context) error {
	s.close()
	errs := []error{s.tool(ctx, "ip link del up0"), s.tool(ctx, "ip netns del "+world)}
	for _, c := range s.cast {
		errs = append(errs, s.tool(ctx, "ip netns del "+c.name))
	}
	return errors.Join(errs...)
}
