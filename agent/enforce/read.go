package enforce

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Objects lists everything in the API that policy depends on, and calls f with each object.
func Objects(ctx context.Context, config *rest.Config, f func(runtime.Object) error) error {
	for _, k := range kinds() {
		c, err := client(config, k.group)
		if err != nil {
			return err
		}
		list, err := cache.NewListWatchFromClient(c, k.resource, metav1.NamespaceAll, fields.Everything()).ListWithContext(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) && k.optional {
			continue
		}
		if err == nil {
			err = meta.EachListItem(list, f)
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", k.resource, err)
		}
	}
	return nil
}
