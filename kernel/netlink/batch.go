package netlink

import "golang.org/x/sys/unix"

// Transact sends requests as one nftables transaction: all or none of them take effect. If gen is not 0, the
// transaction fails with ERESTART when the ruleset is no longer of that generation.
func (c *Conn) Transact(reqs []Request, gen uint32) ([]Response, error) {
	envelope := Buffer{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	begin := append(Buffer(nil), envelope...)
	if gen != 0 {
		begin.Uint32BE(unix.NFNL_BATCH_GENID, gen)
	}
	var out Buffer
	first := c.seq + 1
	c.seq++
	appendMessage(&out, unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, c.seq, begin)
	for _, r := range reqs {
		c.seq++
		appendMessage(&out, r.Type, r.Flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.seq, r.Body)
	}
	c.seq++
	appendMessage(&out, unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, c.seq, envelope)
	if err := c.send(out); err != nil {
		return nil, err
	}
	// The kernel answers the envelope only when the transaction fails as a whole.
	resp := make([]Response, len(reqs)+2)
	for pending := len(reqs); pending > 0; {
		n, err := c.read(first, resp)
		if err != nil {
			return nil, &UnansweredError{err}
		}
		pending -= n
		if resp[0].Err != nil {
			return nil, resp[0].Err
		}
	}
	return resp[1 : len(reqs)+1], resp[len(reqs)+1].Err
}

// UnansweredError reports that the reply to a transaction was lost, so the transaction may have taken effect.
type UnansweredError struct{ error }

func (u *UnansweredError) Unwrap() error { return u.error }
