package ipam

// checksum is FNV-1a of 32 bits: it finds what was torn or flipped, and needs
// no table, which every start of a plugin would fill.
func checksum(b []byte) uint32 {
	sum := uint32(2166136261)
	for _, c := range b {
		sum = (sum ^ uint32(c)) * 16777619
	}
	return sum
}
