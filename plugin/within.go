package plugin

import "context"

type hostKey struct{}

// Within is a context for plugins to which another namespace is the host: that of an
// isolated network. They must be called on a thread that is there (kernel.Netns.Do);
// their records tell the path. What they make is no part of the caller's own session.
func Within(ctx context.Context, host string) context.Context {
	return context.WithValue(context.WithValue(ctx, sessionKey{}, nil), hostKey{}, host)
}

// hostOf is the path of the namespace that is the host; "": the real one.
func hostOf(ctx context.Context) string {
	path, _ := ctx.Value(hostKey{}).(string)
	return path
}
