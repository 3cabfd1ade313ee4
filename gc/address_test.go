package gc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/internal/netconf"
)

// TestManyNetworks checks that each configuration is read a few times at most, however many networks there are.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const networks = 400
	for i := range networks {
		conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"n%d","plugins":[{"type":"bridge","ipam":{"type":"host-local","dataDir":"/d%d"}}]}`, i, i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.conflist", i)), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	netconf.Names(dir)
	once := time.Since(begin)
	begin = time.Now()
	dirs, err := gc.HostLocalDirs(t.TempDir(), dir, nil)
	took := time.Since(begin)
	if err != nil || len(dirs) != networks {
		t.Errorf("%d directories, %v", len(dirs), err)
	}
	if took > 50*once {
		t.Errorf("took %v: to read all configurations once takes %v", took, once)
	}
}
