package plugin

import "context"

type stagedKey struct{}

// Staged returns a context for ADDs whose namespace is the host's: a runtime moves the container's link into the
// container later, and configures it there. Such an ADD creates the host's objects and the container's link. It records
// the container's other objects and creates none of them. See attach.Dir.Settle.
func Staged(ctx context.Context) context.Context { return context.WithValue(ctx, stagedKey{}, true) }

func isStaged(ctx context.Context) bool { return ctx.Value(stagedKey{}) != nil }
