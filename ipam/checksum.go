package ipam

// checksum returns the 32-bit FNV-1a hash. It detects torn or flipped data, and needs no table, which every start of a
// plugin would have to fill.
func checksum(b []byte) uint32 {
	sum := uint32(2166136261)
	for _, c := range b {
		sum = (sum ^ uint32(c)) * 16777619
	}
	return sum
}
