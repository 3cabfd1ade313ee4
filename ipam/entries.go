package ipam

// add records an address as allocated.
func (x *index) add(r record) error {
	if err := x.records.insert(r.slot()); err != nil {
		return err
	}
	x.header.tables[0].used++
	return x.setAllocated(number(r.addr), true)
}

// drop deletes a record.
func (x *index) drop(r record) error {
	found := false
	i, err := x.records.each(r.owner, func(_ uint32, s slot) (bool, error) {
		found = s.record().addr == r.addr
		return found, nil
	})
	if err != nil || !found {
		return err
	}
	if err := x.records.remove(i); err != nil {
		return err
	}
	x.header.tables[0].used--
	return x.setAllocated(number(r.addr), false)
}

// find returns an owner's records.
func (x *index) find(owner key) (records []record, err error) {
	_, err = x.records.each(owner, func(_ uint32, s slot) (bool, error) {
		records = append(records, s.record())
		return false, nil
	})
	return records, err
}

// block returns an address's block and its slot. A block without allocated addresses does not exist.
func (x *index) block(n u128) (s slot, i uint32, found bool, err error) {
	i, err = x.blocks.each(blockKey(n), func(_ uint32, b slot) (bool, error) {
		s, found = b, true
		return true, nil
	})
	return s, i, found, err
}

// setAllocated sets or clears an address's bit.
func (x *index) setAllocated(n u128, allocated bool) error {
	s, i, found, err := x.block(n)
	if err != nil || !found && !allocated {
		return err
	}
	if !found {
		k := blockKey(n)
		copy(s[:], k[:])
		x.header.tables[1].used++
	}
	s.setAllocated(byte(n.lo), allocated)
	if s.empty() {
		x.header.tables[1].used--
		return x.blocks.remove(i)
	}
	return x.blocks.set(i, s)
}

// nextFree returns the first free address from first to last. A run of allocated addresses costs one lookup per block.
func (x *index) nextFree(first, last u128) (n u128, ok bool, err error) {
	for n = first; !last.less(n); {
		s, _, found, err := x.block(n)
		if err != nil || !found {
			return n, err == nil, err
		}
		for low := int(byte(n.lo)); low < blockSize; low++ {
			if !s.allocated(byte(low)) {
				n.lo = n.lo&^(blockSize-1) | uint64(low)
				return n, !last.less(n), nil
			}
		}
		next := n
		next.lo &^= blockSize - 1
		if n = next.add(blockSize); n.less(next) {
			return n, false, nil // past the last IPv6 address
		}
	}
	return n, false, nil
}
