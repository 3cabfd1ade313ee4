package link

// VLANRange is an element of a trunk in a configuration: one ID, or a range of IDs.
type VLANRange struct {
	MinID *int `json:"minID,omitempty"`
	MaxID *int `json:"maxID,omitempty"`
	ID    *int `json:"id,omitempty"`
}

const maxVLAN = 4094 // IEEE 802.1Q: 4095 is reserved

// Problem says what is wrong with a range, or "". IDs start at least, which leastWords spells out for the message.
func (v VLANRange) Problem(least int, leastWords string) string {
	in := func(p *int) bool { return p == nil || *p >= least && *p <= maxVLAN }
	switch {
	case !in(v.ID) || !in(v.MinID) || !in(v.MaxID):
		return "want VLAN IDs from " + leastWords + " to 4094"
	case (v.MinID == nil) != (v.MaxID == nil):
		return "want both minID and maxID, or id"
	case v.ID == nil && v.MinID == nil:
		return "want id, or minID and maxID"
	case v.MinID != nil && *v.MinID > *v.MaxID:
		return "minID is greater than maxID"
	}
	return ""
}
