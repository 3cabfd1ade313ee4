package netlink

import "golang.org/x/sys/unix"

// Transact sends requests as one nftables transaction: all or none of them take effect. If gen is not 0, the
// transaction fails with ERESTART when the ruleset is no longer of that generation.
//
// Only the last request asks for an acknowledgement. The kernel reports errors of the others all the same, and thousands
// of acknowledgements would not fit the receive buffer.
func (c *Conn) Transact(reqs []Request, gen uint32) ([]Response, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	first := c.seq + 1
	batch := c.batch(reqs, gen)
	c.raiseSendLimit(len(batch))
	if err := c.send(batch); err != nil {
		return nil, err
	}
	// The kernel answers the envelope only when the transaction fails as a whole.
	resp := make([]Response, len(reqs)+2)
	for last := &resp[len(reqs)]; !last.answered; {
		if _, err := c.read(first, resp); err != nil {
			return nil, &UnansweredError{err}
		}
		if resp[0].Err != nil {
			return nil, resp[0].Err
		}
	}
	return resp[1 : len(reqs)+1], resp[len(reqs)+1].Err
}

func (c *Conn) batch(reqs []Request, gen uint32) (out Buffer) {
	envelope := Buffer{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	begin := append(Buffer(nil), envelope...)
	if gen != 0 {
		begin.Uint32BE(unix.NFNL_BATCH_GENID, gen)
	}
	add := func(typ, flags uint16, body []byte) {
		c.seq++
		appendMessage(&out, typ, flags|unix.NLM_F_REQUEST, c.seq, body)
	}
	add(unix.NFNL_MSG_BATCH_BEGIN, 0, begin)
	for _, r := range reqs[:len(reqs)-1] {
		add(r.Type, r.Flags&^unix.NLM_F_ACK, r.Body)
	}
	last := reqs[len(reqs)-1]
	add(last.Type, last.Flags|unix.NLM_F_ACK, last.Body)
	add(unix.NFNL_MSG_BATCH_END, 0, envelope)
	return out
}

// defaultSendLimit is less than the default send buffer (net.core.wmem_default, 208 KiB).
const defaultSendLimit = 128 << 10

// raiseSendLimit makes the send buffer large enough for a write. The kernel accepts no write that is larger.
func (c *Conn) raiseSendLimit(size int) {
	if size <= max(c.sendLimit, defaultSendLimit) {
		return
	}
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) == nil { // otherwise send reports EMSGSIZE
		c.sendLimit = size
	}
}

const (
	defaultReceiveLimit = 128     // acknowledgements that certainly fit the default buffer (net.core.rmem_default, 208 KiB)
	bytesPerAck         = 2 << 10 // more than the kernel counts for one, which is about 800 bytes
	largeReceiveBuffer  = 4 << 20 // bytes; the kernel doubles it
)

// raiseReceiveLimit makes the receive buffer large enough for the acknowledgements of one write, which arrive all at
// once. It never makes a buffer smaller that a caller has enlarged to largeReceiveBuffer.
func (c *Conn) raiseReceiveLimit(requests int) {
	if requests <= max(c.receiveLimit, defaultReceiveLimit) {
		return
	}
	size := max(requests*bytesPerAck, largeReceiveBuffer)
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil { // otherwise read may report ENOBUFS
		c.receiveLimit = size / bytesPerAck
	}
}

// UnansweredError reports that the reply to a transaction was lost, so the transaction may have taken effect.
type UnansweredError struct{ error }

func (u *UnansweredError) Unwrap() error { return u.error }
