package enforce

import "strings"

// setUnreadable notes why some policies cannot be read, or with "" that all can.
func (e *Enforcer) setUnreadable(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unreadable = shortened(why)
}

// setUnread notes why some attachments of this node cannot be read, or with "" that all can.
func (e *Enforcer) setUnread(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread = shortened(why)
}

// shortened returns a reason in one line, which gets into the node's document in the store.
func shortened(why string) string {
	const longest = 300 // bytes
	why = strings.ReplaceAll(why, "\n", "; ")
	return strings.ToValidUTF8(why[:min(len(why), longest)], "")
}
