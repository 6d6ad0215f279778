// Package plugin is kubectl holdfast: what people see of their clusters and do
// with them, with their own credentials. It knows nothing that the API server
// and the members do not say, and keeps no state.
package plugin

import (
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// FieldManager under which the plugin writes what a person asks for.
const FieldManager = "kubectl-holdfast"

// NewRootCommand is the command that kubectl runs for kubectl holdfast.
func NewRootCommand(version string) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-holdfast",
		Short:         "See and steer database clusters that Holdfast runs",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl holdfast"},
	}
	root.AddCommand(NewVerbCommands()...)
	return root
}

// NewVerbCommands are the subcommands, each with kubectl's flags for reaching a cluster.
func NewVerbCommands() []*cobra.Command { return verbCommands(&session{}) }

func verbCommands(s *session) []*cobra.Command {
	verbs := []*cobra.Command{
		statusCommand(s), driftCommand(s), suspendCommand(s), resumeCommand(s), reconcileCommand(s), backupCommand(s),
		planCommand(s), switchoverCommand(s), promoteCommand(s), discardVolumeCommand(s),
		shellCommand(s), logsCommand(s), insightsCommand(s), recommendCommand(s), credentialsCommand(s), uiCommand(s),
	}
	for _, k := range allKinds() {
		verbs = append(verbs, clientCommand(s, k))
	}
	for _, verb := range verbs {
		verb.Flags().StringVar(&s.kubeconfig, "kubeconfig", "", "path of the kubeconfig file")
		clientcmd.BindOverrideFlags(&s.overrides, verb.Flags(), clientcmd.RecommendedConfigOverrideFlags(""))
		if verb.ValidArgsFunction == nil {
			verb.ValidArgsFunction = s.completeNames(allKinds()...)
		}
	}
	return verbs
}

// exitError is an error with an exit code of its own. Without err there is
// nothing to say.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap implements errors.Unwrap's interface.
func (e *exitError) Unwrap() error { return e.err }

// ExitCode that a command's error asks for, and whether there is anything to
// print about it.
func ExitCode(err error) (code int, print bool) {
	var own *exitError
	var remote exec.CodeExitError
	switch {
	case err == nil:
		return 0, false
	case errors.As(err, &own):
		return own.code, own.err != nil
	case errors.As(err, &remote):
		return remote.Code, false // the program said itself what was wrong
	}
	return 1, true
}

// session is how one invocation reaches a cluster.
type session struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides

	config    *rest.Config
	client    client.Client
	kube      kubernetes.Interface
	namespace string
}

// connectToCluster reads the kubeconfig, and makes the clients.
func (s *session) connectToCluster() error {
	if s.client != nil {
		return nil
	}
	logf.SetLogger(logr.Discard())
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &s.overrides)
	config, err := loaded.ClientConfig()
	if err != nil {
		return fmt.Errorf("no cluster to talk to: %w; check --kubeconfig, $KUBECONFIG and --context", err)
	}
	if s.namespace, _, err = loaded.Namespace(); err != nil {
		return fmt.Errorf("the kubeconfig's namespace: %w", err)
	}
	return s.makeClients(config)
}

func (s *session) makeClients(config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config.UserAgent = FieldManager
	if config.QPS == 0 {
		config.QPS, config.Burst = 50, 100
	}
	var err error
	s.config = config
	if s.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

// flagHint is how to name the cluster in another command.
func flagHint(c v1alpha1.Cluster) string { return c.GetName() + " -n " + c.GetNamespace() }

// exactlyOne cluster is named, before any arguments after --.
func exactlyOne(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if len(args) != 1 {
		return fmt.Errorf("name one cluster: %s NAME (kubectl holdfast status lists them)", cmd.CommandPath())
	}
	return nil
}

func stdoutIsTerminal(cmd *cobra.Command) bool {
	file, isFile := cmd.OutOrStdout().(*os.File)
	return isFile && isTerminal(file)
}
