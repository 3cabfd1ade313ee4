package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// Remove ends the enforcement of policy on this host, and in the namespaces of isolated networks. It reports whether there
// was a table.
func Remove(ctx context.Context) (existed bool, err error) {
	paths, _ := filepath.Glob(local.NetnsPath("*")) // the pattern is valid
	return removeFrom(ctx, paths)
}

// removeFrom removes the tables from the namespace of the calling thread and from others.
func removeFrom(ctx context.Context, paths []string) (existed bool, err error) {
	existed, err = removeHere(ctx)
	for _, path := range paths {
		ns, openErr := netns.Open(path)
		if errors.Is(openErr, fs.ErrNotExist) {
			continue
		}
		if openErr == nil {
			openErr = ns.Do(func() error {
				there, err := removeHere(ctx)
				existed = existed || there
				return err
			})
			ns.Close()
		}
		err = errors.Join(err, openErr)
	}
	return existed, err
}

// removeHere removes the tables from the namespace of the calling thread.
func removeHere(ctx context.Context) (existed bool, err error) {
	p, err := nftable.Open()
	if err != nil {
		return false, fmt.Errorf("network policy: %w", err)
	}
	defer p.Close()
	for _, name := range []string{policy.TableName, policy.CutTableName} {
		existedToo, err := p.Delete(ctx, policy.TableFamily, name)
		if existed = existed || existedToo; err != nil {
			return existed, err
		}
	}
	return existed, nil
}
