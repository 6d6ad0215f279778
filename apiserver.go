package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/startup"
)

// waitForAPIServer returns once the API server answers, and reads the operator's
// own image if no flag names one.
func (o *managerOptions) waitForAPIServer(ctx context.Context, config *rest.Config, scheme *apiruntime.Scheme, log logr.Logger) error {
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("set up a client: %w", err)
	}
	ask := func(ctx context.Context) error { return o.askAPIServer(ctx, reader) }
	return startup.Wait{Ask: ask, HealthAddress: o.healthAddress, Log: log}.ForAnswer(ctx)
}

// askAPIServer reads what the caches begin with, which takes the API server's
// store too. Refused rights and missing definitions are answers: the controllers
// report them.
func (o *managerOptions) askAPIServer(ctx context.Context, reader client.Reader) error {
	namespace := ""
	if len(o.namespaces) > 0 {
		namespace = o.namespaces[0]
	}
	var status apierrors.APIStatus
	err := reader.List(ctx, &v1alpha1.PostgresClusterList{}, client.InNamespace(namespace), client.Limit(1))
	answered := startup.ReasonToWait(err) == "" && (meta.IsNoMatchError(err) || errors.As(err, &status))
	if err != nil && !answered {
		return err
	}
	if o.agentImage == "" {
		o.agentImage, err = ownImage(ctx, reader)
		return err
	}
	return nil
}
