package agent

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// object is what the agent watches: one object, by name.
type object interface {
	runtime.Object
	metav1.Object
}

// source reads and watches objects of one kind in one namespace.
type source[T object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// followObject calls observed with the object and with each of its versions until ctx
// ends. It reads the object again, with growing pauses, when the watch breaks.
func followObject[T object](ctx context.Context, from source[T], name string, observed func(T), failed func(error)) {
	const shortest, longest = 500 * time.Millisecond, 10 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		began := time.Now()
		err := followOnce(ctx, from, name, observed)
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		clock.Sleep(ctx, pause)
		pause = min(2*pause, longest)
	}
}

func followOnce[T object](ctx context.Context, from source[T], name string, observed func(T)) error {
	read, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	first, err := from.Get(read, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	observed(first)
	// Without a version the watch begins with the object as it is. One from the
	// version just read would be refused, for an object that has not changed
	// for longer than the API server remembers.
	events, err := from.Watch(ctx, metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		TimeoutSeconds: new(int64(1800)),
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if event.Type == watch.Error || event.Type == watch.Deleted {
				return errors.New("the watch ended: " + string(event.Type))
			}
			if next, ok := event.Object.(T); ok && next.GetName() == name {
				observed(next)
			}
		}
	}
}
