package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/yamlerr"
)

// Options say where the API is.
type Options struct {
	Kubeconfig string // path, or several as in KUBECONFIG; "": the service account of this pod
	Namespace  string // of the Leases
	Flannel    string // prefix of flannel's annotations, which then are part of the nodes' documents; "": they are ignored
	Config     *rest.Config
}

// Store is a store.Store in the Kubernetes API.
type Store struct {
	client     rest.Interface // JSON: custom resources and Leases
	core       rest.Interface // protobuf: Nodes
	parameters runtime.ParameterCodec
	kinds      []*kind
	flannel    *cluster.FlannelAnnotations // nil: they are ignored

	mu       sync.Mutex
	lineage  int64                       // how often the API was found to be restored from a backup
	listed   map[*kind]int64             // revisions of lists from which no watch has begun yet
	created  map[int64]int64             // the API's revisions of sessions, by their own, from which no watch has begun yet
	networks map[string]networkState     // by name
	reported map[string]metav1.Condition // of each network, by name: what this agent reported last, without the time
	closed   context.CancelFunc
	life     context.Context
	held     sync.WaitGroup
}

// Requests per second, and at once, that one agent sends at most.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

// Open returns a store. It does not connect: if the API cannot be reached, the first call fails.
func Open(o Options) (*Store, error) {
	c, scheme, err := o.config()
	if err != nil {
		return nil, err
	}
	s := &Store{
		kinds: kinds(o.Namespace), listed: map[*kind]int64{}, created: map[int64]int64{}, networks: map[string]networkState{}, reported: map[string]metav1.Condition{},
		parameters: runtime.NewParameterCodec(scheme),
	}
	if o.Flannel != "" {
		s.flannel = cluster.NewFlannelAnnotations(o.Flannel)
	}
	s.life, s.closed = context.WithCancel(context.Background())
	if s.client, err = rest.RESTClientFor(c); err != nil {
		return nil, fmt.Errorf("the Kubernetes API: %w", err)
	}
	c.AcceptContentTypes, c.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	if s.core, err = rest.RESTClientFor(c); err != nil {
		return nil, fmt.Errorf("the Kubernetes API: %w", err)
	}
	return s, nil
}

// Client returns a client of the API for JSON. It has its own limit of requests.
func Client(o Options) (rest.Interface, error) {
	c, _, err := o.config()
	if err != nil {
		return nil, err
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API: %w", err)
	}
	return client, nil
}

// RESTConfig returns the configuration of a client of the API. Its GroupVersion and NegotiatedSerializer are not for every
// group.
func RESTConfig(o Options) (*rest.Config, error) {
	c, _, err := o.config()
	return c, err
}

// config returns the configuration of a client for JSON.
func (o Options) config() (*rest.Config, *runtime.Scheme, error) {
	config := o.Config
	if config == nil {
		var err error
		switch paths := filepath.SplitList(o.Kubeconfig); len(paths) {
		case 0:
			config, err = rest.InClusterConfig()
		case 1:
			config, err = clientcmd.BuildConfigFromFlags("", paths[0])
		default:
			rules := &clientcmd.ClientConfigLoadingRules{Precedence: paths}
			config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the Kubernetes API: %w", yamlerr.Kubeconfig(err))
		}
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.UserAgent = requestsPerSecond, requestsAtOnce, "fairlead"
	LimitAnswers(c)
	c.WarningHandler = rest.NoWarnings{} // they are about fields of others, and would be no lines of the agent's log
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return c, scheme, nil
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Lineager = (*Store)(nil)
)

// kindOf returns how a key, or a prefix of keys, is kept.
func (s *Store) kindOf(key string) (*kind, error) {
	for _, k := range s.kinds {
		if strings.HasPrefix(key, k.prefix) {
			return k, nil
		}
	}
	return nil, fmt.Errorf("the key %q has no object in Kubernetes", key)
}

func (s *Store) isOpen() error {
	if s.life.Err() != nil {
		return os.ErrClosed
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	k, err := s.kindOf(key)
	if err := cmp.Or(s.isOpen(), err); err != nil {
		return store.Entry{}, err
	}
	e, _, err := s.read(ctx, k, key)
	if err == nil && k.prefix == cluster.AlivePrefix {
		held, err := s.sessionIsHeld(ctx, e)
		if err != nil || !held {
			return store.Entry{}, cmp.Or(err, os.ErrNotExist)
		}
	}
	return e, err
}

// read returns a key's entry and its object; Nodes have none here.
func (s *Store) read(ctx context.Context, k *kind, key string) (store.Entry, *object, error) {
	switch k.prefix {
	case cluster.NodesPrefix:
		name := strings.TrimPrefix(key, k.prefix)
		if checkName(name) != nil {
			return store.Entry{}, nil, cmp.Or(s.ping(ctx), os.ErrNotExist)
		}
		e, err := s.getNode(ctx, name)
		return e, nil, err
	case cluster.EndpointsPrefix:
		return store.Entry{}, nil, os.ErrNotExist
	}
	name, err := k.name(key)
	if err != nil {
		return store.Entry{}, nil, cmp.Or(s.ping(ctx), fmt.Errorf("%w: %w", err, os.ErrNotExist))
	}
	o, err := s.get(ctx, k, name)
	if err != nil {
		return store.Entry{}, nil, err
	}
	e, ok := k.entry(o)
	if !ok || e.Key != key { // its name is taken, so the key is not free
		return store.Entry{}, o, k.mismatch(name)
	}
	return e, o, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) (entries []store.Entry, revision int64, err error) {
	if err := s.isOpen(); err != nil {
		return nil, 0, err
	}
	for _, k := range s.kinds {
		if !strings.HasPrefix(prefix, k.prefix) && !strings.HasPrefix(k.prefix, prefix) || k.prefix == cluster.EndpointsPrefix {
			continue
		}
		list, at, err := s.listKind(ctx, k)
		if err != nil {
			return nil, 0, err
		}
		s.mu.Lock()
		s.listed[k] = at
		s.mu.Unlock()
		entries = append(entries, list...)
		if revision == 0 || at < revision {
			revision = at // what the other lists have in addition follows from a watch
		}
	}
	entries = slices.DeleteFunc(entries, func(e store.Entry) bool { return !strings.HasPrefix(e.Key, prefix) })
	slices.SortFunc(entries, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries, revision, nil
}

func (s *Store) listKind(ctx context.Context, k *kind) (entries []store.Entry, revision int64, err error) {
	if k.prefix == cluster.NodesPrefix {
		return s.listNodes(ctx)
	}
	revision, err = s.list(ctx, k, "", func(o *object) {
		s.noteNetwork(k, o, false)
		if e, ok := k.entry(o); ok {
			entries = append(entries, e)
		}
	})
	if err == nil && k.prefix == cluster.AlivePrefix {
		entries, err = s.withoutEnded(ctx, entries)
	}
	return entries, revision, err
}

// checkPosition returns store.ErrRestored if the API is behind a revision: it was restored from a backup. A watch from
// that revision would wait without an error until the API has passed it.
func (s *Store) checkPosition(ctx context.Context, k *kind, revision int64) error {
	if k.prefix == cluster.EndpointsPrefix {
		return nil
	}
	now, err := s.position(ctx, k)
	if err != nil || now >= revision {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lineage++
	return store.ErrRestored
}

// beginsAtList reports whether a watch begins where the last list ended, for the first time. Its position needs no check.
func (s *Store) beginsAtList(k *kind, after int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.listed[k]
	delete(s.listed, k)
	return ok && at == after
}

// Lineage implements store.Lineager.
func (s *Store) Lineage() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lineage
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, f func(store.Batch) error) error {
	k, err := s.kindOf(prefix)
	if err := cmp.Or(s.isOpen(), err); err != nil {
		return err
	}
	only := func(b store.Batch) error {
		b.Events = slices.DeleteFunc(b.Events, func(e store.Event) bool { return !strings.HasPrefix(e.Key, prefix) })
		after = max(after, b.Revision)
		return f(b)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	name, listed := "", s.beginsAtList(k, after)
	if k.prefix == cluster.AlivePrefix && prefix != k.prefix {
		if name, err = k.name(prefix); err != nil {
			return err
		}
		if after, err = s.sessionPosition(ctx, k, name, prefix, after, only); err != nil {
			return err
		}
		listed = true
	}
	for err == nil || errors.Is(err, errWatchEnded) {
		if !listed {
			if err := s.checkPosition(ctx, k, after); err != nil {
				return err
			}
		}
		listed = false
		began := time.Now()
		switch k.prefix {
		case cluster.NodesPrefix:
			err = s.watchNodes(ctx, after, only)
		case cluster.EndpointsPrefix:
			<-ctx.Done()
			err = ctx.Err()
		default:
			err = s.watch(ctx, k, name, after, func(o *object, deleted bool) error {
				s.noteNetwork(k, o, deleted)
				return only(k.batch(o, deleted))
			})
		}
		if errors.Is(err, errWatchEnded) && time.Since(began) < ShortWatch {
			pauseWatch(ctx)
		}
	}
	return cmp.Or(s.isOpen(), err)
}

// ShortWatch is the time below which a watch ended too early: a proxy in front of the API may end each one at once.
const ShortWatch = time.Second

// pauseWatch waits before the next watch. The time is random, so that the agents of many nodes do not ask at once.
func pauseWatch(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(ShortWatch + rand.N(ShortWatch)):
	}
}

// sessionPosition returns the API's revision from which to watch a session, whose own revision is not one of the API's:
// that of its creation, for the first watch of a session of this store. Another watch begins with the present state.
func (s *Store) sessionPosition(ctx context.Context, k *kind, name, key string, session int64, f func(store.Batch) error) (int64, error) {
	s.mu.Lock()
	at, known := s.created[session]
	delete(s.created, session)
	s.mu.Unlock()
	if known {
		return at, nil
	}
	now := store.Batch{}
	var err error
	if now.Revision, err = s.list(ctx, k, name, func(o *object) { now.Events = append(now.Events, k.batch(o, false).Events...) }); err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(now.Events, func(e store.Event) bool { return e.Key == key }) {
		now.Events = append(now.Events, store.Event{Entry: store.Entry{Key: key}, Deleted: true})
	}
	return now.Revision, f(now)
}

// batch returns a change of an object, or of nothing but the revision.
func (k *kind) batch(o *object, deleted bool) store.Batch {
	b := store.Batch{Revision: number(o.ResourceVersion)}
	if o.Name == "" {
		return b // a bookmark
	}
	if e, ok := k.entry(o); ok {
		b.Events = []store.Event{{Entry: e, Deleted: deleted}}
	}
	return b
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closed()
	s.held.Wait()
	return nil
}

func format(revision int64) string { return strconv.FormatInt(revision, 10) }
