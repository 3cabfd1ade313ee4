package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Run runs the daemon until the context ends.
func Run(ctx context.Context, o Options, getenv func(string) string) (err error) {
	d, err := New(o)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Listen(getenv)
	if err != nil {
		return err
	}
	defer l.Close()
	if o.PIDFile != "" {
		if err := os.WriteFile(o.PIDFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("write the process ID: %w", err)
		}
		defer func() {
			if e := os.Remove(o.PIDFile); !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}()
	}
	d.log("listening at %s, leases in %s", l.Addr(), d.o.Leases)
	return d.Serve(ctx, l)
}
