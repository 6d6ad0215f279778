package plugin

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// connectionKeys of the connection Secret, by the Service Binding convention,
// in the order in which they are shown.
var connectionKeys = []string{"host", "port", "username", "database", "password"}

type credentialsOptions struct {
	*session
	password bool
	output   string
}

func credentialsCommand(s *session) *cobra.Command {
	o := &credentialsOptions{session: s}
	cmd := &cobra.Command{
		Use:   "credentials NAME",
		Short: "Print how applications connect; the password only with --show-password",
		Example: `  kubectl holdfast credentials orders
  eval "$(kubectl holdfast credentials orders -o env --show-password)"`,
		Args: exactlyOne,
		RunE: o.run,
	}
	cmd.Flags().BoolVar(&o.password, "show-password", false, "print the password too")
	outputFlag(cmd, &o.output, "", "env", "json", "uri")
	return cmd
}

func (o *credentialsOptions) run(cmd *cobra.Command, args []string) error {
	c, err := o.find(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	data, err := o.secret(cmd, c)
	if err != nil {
		return err
	}
	if err := o.print(cmd.OutOrStdout(), kindOf(c), data); err != nil {
		return err
	}
	switch {
	case o.password && stdoutIsTerminal(cmd):
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: the password is on your screen and in its scroll-back")
	case !o.password && o.output == "":
		fmt.Fprintln(cmd.ErrOrStderr(), "The password is shown with --show-password.")
	}
	return nil
}

func (o *credentialsOptions) secret(cmd *cobra.Command, c v1alpha1.Cluster) (map[string][]byte, error) {
	name := c.CommonStatus().CredentialsSecret
	if name == "" {
		return nil, fmt.Errorf("%s has no credentials yet: see kubectl holdfast status %s", c.GetName(), flagHint(c))
	}
	var secret corev1.Secret
	err := o.client.Get(cmd.Context(), client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s is missing: the operator makes it again unless %s is suspended (kubectl holdfast reconcile %s)", name, c.GetName(), flagHint(c))
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("read secret %s: %w: it needs the right to get secrets in namespace %s", name, err, c.GetNamespace())
	case err != nil:
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	return secret.Data, nil
}

func (o *credentialsOptions) print(w io.Writer, k kind, data map[string][]byte) error {
	shown := map[string]string{}
	for _, key := range connectionKeys {
		if value, has := data[key]; has && (key != "password" || o.password) {
			shown[key] = string(value)
		}
	}
	uri, err := o.uri(string(data["uri"]))
	if err != nil {
		return err
	}
	var lines []string
	switch o.output {
	case "json":
		shown["uri"] = uri
		return encode(w, "json", shown)
	case "uri":
		lines = []string{uri}
	case "env":
		for _, key := range connectionKeys {
			if value, has := shown[key]; has {
				lines = append(lines, "export "+k.environment[key]+"="+quote(value))
			}
		}
	default:
		var cells [][]cell
		for _, key := range connectionKeys {
			if value, has := shown[key]; has {
				cells = append(cells, []cell{{key, plain}, {value, plain}})
			}
		}
		lines = style{}.align(append(cells, []cell{{"uri", plain}, {uri, plain}}))
	}
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// uri without the password, unless that is asked for.
func (o *credentialsOptions) uri(full string) (string, error) {
	if o.password || full == "" {
		return full, nil
	}
	u, err := url.Parse(full)
	if err != nil || u.User == nil {
		// The parser's complaint would quote the password.
		return "", fmt.Errorf("the connection Secret's uri cannot be shown without its password: it is no URI")
	}
	u.User = url.User(u.User.Username())
	return u.String(), nil
}

// quote for a POSIX shell.
func quote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || slices.Contains([]rune("-_./:@%+,="), r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
