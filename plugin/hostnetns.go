package plugin

import "context"

type hostKey struct{}

// WithHost returns a context for plugins to which another namespace is the host: that of an isolated network. Call them
// on a thread in that namespace (kernel.Netns.Do); their records have its path. They do not join the caller's session.
func WithHost(ctx context.Context, host string) context.Context {
	return context.WithValue(context.WithValue(ctx, sessionKey{}, nil), hostKey{}, host)
}

// Finish does what the plugins before the caller noted in the list's session, so that plugins that do not join the session
// find it done: on DEL, the record is unlocked then. Call it before WithHost.
func Finish(ctx context.Context) error {
	if s, shared := ctx.Value(sessionKey{}).(*session); shared {
		return s.removeNoted(ctx)
	}
	return nil
}

// hostOf returns the path of the namespace that acts as the host, or "" for the real host.
func hostOf(ctx context.Context) string {
	path, _ := ctx.Value(hostKey{}).(string)
	return path
}
