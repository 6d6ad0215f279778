package tracing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient makes a client that records the writes of passes.
func (t *Tracer) NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	next, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return t.WrapClient(next), nil
}

// WrapClient makes a client that records the writes of passes. Without a Tracer it is the
// same. The operator applies by Patch and deletes one object at a time: the other ways of a
// client are not recorded.
func (t *Tracer) WrapClient(next client.Client) client.Client {
	if t == nil {
		return next
	}
	return writer{next}
}

// writer records each write under a context of a pass. Dry runs write nothing.
type writer struct{ client.Client }

// record sends a write, and records it for the pass that sends it.
func (w writer) record(ctx context.Context, verb string, obj client.Object, subresource string, dryRun []string, send func() error) error {
	s, _ := ctx.Value(scopeKey{}).(scope)
	if s.pass == nil || len(dryRun) > 0 {
		return send()
	}
	o := operation{verb: verb, namespace: obj.GetNamespace(), name: obj.GetName(), subresource: subresource, parent: s.parent}
	if gvk, err := w.GroupVersionKindFor(obj); err == nil {
		o.kind = gvk.Kind
	}
	at := s.pass.begin(o)
	err := send()
	if at == noParent {
		return err
	}
	if o.name == "" {
		s.pass.setName(at, obj.GetName()) // by generateName
	}
	s.pass.finish(at, err)
	return err
}

// Create implements client.Client.
func (w writer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	dry := (&client.CreateOptions{}).ApplyOptions(opts).DryRun
	return w.record(ctx, "create", obj, "", dry, func() error { return w.Client.Create(ctx, obj, opts...) })
}

// Update implements client.Client.
func (w writer) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	dry := (&client.UpdateOptions{}).ApplyOptions(opts).DryRun
	return w.record(ctx, "update", obj, "", dry, func() error { return w.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Client.
func (w writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	dry := (&client.PatchOptions{}).ApplyOptions(opts).DryRun
	return w.record(ctx, verbOf(patch), obj, "", dry, func() error { return w.Client.Patch(ctx, obj, patch, opts...) })
}

// Delete implements client.Client.
func (w writer) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	dry := (&client.DeleteOptions{}).ApplyOptions(opts).DryRun
	return w.record(ctx, "delete", obj, "", dry, func() error { return w.Client.Delete(ctx, obj, opts...) })
}

// Status implements client.Client.
func (w writer) Status() client.SubResourceWriter { return w.SubResource("status") }

// SubResource implements client.Client.
func (w writer) SubResource(name string) client.SubResourceClient {
	return subresourceWriter{w.Client.SubResource(name), w, name}
}

// subresourceWriter records writes of a subresource, such as status.
type subresourceWriter struct {
	client.SubResourceClient
	writer writer
	name   string
}

// Create implements client.SubResourceWriter.
func (w subresourceWriter) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	dry := (&client.SubResourceCreateOptions{}).ApplyOptions(opts).DryRun
	return w.writer.record(ctx, "create", obj, w.name, dry, func() error { return w.SubResourceClient.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceWriter.
func (w subresourceWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	dry := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).DryRun
	return w.writer.record(ctx, "update", obj, w.name, dry, func() error { return w.SubResourceClient.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceWriter.
func (w subresourceWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	dry := (&client.SubResourcePatchOptions{}).ApplyOptions(opts).DryRun
	return w.writer.record(ctx, verbOf(patch), obj, w.name, dry, func() error { return w.SubResourceClient.Patch(ctx, obj, patch, opts...) })
}

// verbOf is what a patch is called.
func verbOf(patch client.Patch) string {
	if patch.Type() == types.ApplyPatchType {
		return "apply"
	}
	return "patch"
}
