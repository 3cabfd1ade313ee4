package plugin

import "context"

type hostKey struct{}

// WithHost returns a context for plugins to which another namespace is the host: that of an isolated network. Call them
// on a thread in that namespace (kernel.Netns.Do); their records have its path. They do not join the caller's session.
func WithHost(ctx context.Context, host string) context.Context {
	return context.WithValue(context.WithValue(ctx, sessionKey{}, nil), hostKey{}, host)
}

// hostOf returns the path of the namespace that acts as the host, or "" for the real host.
func hostOf(ctx context.Context) string {
	path, _ := ctx.Value(hostKey{}).(string)
	return path
}
