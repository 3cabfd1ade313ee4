package crash

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRefusedDump asks the kernel for the elements of no set. The refusal is an error, and not an empty list.
func TestRefusedDump(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	d, err := newDumper()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	list, err := dump(d.netfilter, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, make([]byte, 4), 4)
	if _, refused := errors.AsType[unix.Errno](err); !refused {
		t.Errorf("%d elements, %v: want the kernel's refusal", len(list), err)
	}
}
