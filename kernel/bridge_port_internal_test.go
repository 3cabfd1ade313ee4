package kernel

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// TestParseVLANs decodes single VLANs and ranges, as the kernel lists them.
func TestParseVLANs(t *testing.T) {
	t.Parallel()
	var b netlink.Buffer
	for _, info := range [][2]uint16{
		{vlanPVID | vlanUntagged, 1}, {vlanRangeBegin, 5}, {vlanRangeEnd, 8}, {0, 9},
		{vlanRangeBegin | vlanUntagged, 4093}, {vlanRangeEnd | vlanUntagged, 4094},
	} {
		b.Bytes(bridgeVLANInfo, binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, info[0]), info[1]))
	}
	b.Bytes(bridgeVLANInfo, []byte{0})
	want := map[int]uint16{1: vlanPVID | vlanUntagged, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0, 4093: vlanUntagged, 4094: vlanUntagged}
	if got := parseVLANs(b); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
