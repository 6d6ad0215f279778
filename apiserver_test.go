package main

import (
	"context"
	"errors"
	"net/url"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/internal/startup"
)

// Only an API server that does not answer is waited for. What it refuses is
// reported by the controllers, and an image that cannot be known ends the start.
func TestAskAPIServer(t *testing.T) {
	t.Setenv("POD_NAME", "holdfast-1")
	t.Setenv("POD_NAMESPACE", "holdfast-system")
	clusters := schema.GroupResource{Group: "holdfast.dev", Resource: "postgresclusters"}
	unreachable := &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: syscall.ECONNREFUSED}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "holdfast-system", Name: "holdfast-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "holdfast:v2"}}},
	}
	for name, test := range map[string]struct {
		list, get error
		flag      string
		wait      bool
		want      error
		image     string
	}{
		"it answers":                            {image: "holdfast:v2"},
		"a flag names the image":                {flag: "holdfast:v3", get: unreachable, image: "holdfast:v3"},
		"it cannot be reached":                  {list: unreachable, want: unreachable, wait: true},
		"it is lost between the two requests":   {get: unreachable, want: unreachable, wait: true},
		"it is lost though a flag names it":     {flag: "holdfast:v3", list: unreachable, want: unreachable, wait: true, image: "holdfast:v3"},
		"it allows no list":                     {list: apierrors.NewForbidden(clusters, "", errors.New("no role")), image: "holdfast:v2"},
		"the kinds are not installed":           {list: &meta.NoKindMatchError{}, image: "holdfast:v2"},
		"the operator may not read its pod":     {get: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "holdfast-1", errors.New("no role")), want: errNoImage},
		"what reads the token fails, and waits": {list: errors.New("read token: no such file"), wait: true},
	} {
		t.Run(name, func(t *testing.T) {
			reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod).Build(), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return test.list
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if test.get != nil {
						return test.get
					}
					return c.Get(ctx, key, into, options...)
				},
			})
			o := managerOptions{agentImage: test.flag}
			err := o.askAPIServer(t.Context(), reader)
			if waits := startup.ReasonToWait(err) != ""; waits != test.wait {
				t.Errorf("waits %t, want %t: %v", waits, test.wait, err)
			}
			if (err != nil) != (test.want != nil || test.wait) || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if o.agentImage != test.image {
				t.Errorf("image %q, want %q", o.agentImage, test.image)
			}
		})
	}
}
