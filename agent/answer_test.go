package agent

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
)

// Who wants to be on the default network as if it were isolated is told at once how it
// is done, instead of waiting for a namespace that never comes.
func TestNetworkHereIsIsolated(t *testing.T) {
	t.Parallel()
	v := newView(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	v.Reset([]store.Entry{{Key: "networks/default", Value: []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`), Revision: 2}}, 2)
	a := &Agent{view: v, status: newStatus("n1")}
	_, err := a.networkHere(context.Background(), json.RawMessage(`{"network": "default"}`))
	e, ok := errors.AsType[*cni.Error](err)
	if !ok || e.Code != cni.CodeInvalidNetworkConfig || !strings.Contains(e.Msg, `it is not isolated: its containers are attached by ptp or bridge with "ipam": {"type": "fairlead-ipam", "network": "default"}`) {
		t.Errorf("got %v", err)
	}
}
