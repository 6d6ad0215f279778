package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// longestBackupName is what the schema lets a Backup be called at most.
const longestBackupName = 54

type backupOptions struct {
	*session
	name    string
	wait    bool
	timeout time.Duration
}

func backupCommand(s *session) *cobra.Command {
	o := &backupOptions{session: s}
	cmd := &cobra.Command{
		Use:   "backup NAME",
		Short: "Back up a cluster now, where its spec.backup says; --wait until that is complete and verified",
		Example: `  kubectl holdfast backup orders
  kubectl holdfast backup orders --name before-release --wait`,
		Args: exactlyOne,
		RunE: o.runBackup,
	}
	cmd.Flags().StringVar(&o.name, "name", "", "name of the Backup (default NAME-manual-<time in UTC>)")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show how far it is, and wait until it is complete and verified, or cannot go on")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 24*time.Hour, "how long --wait waits; the backup itself goes on")
	return cmd
}

func (o *backupOptions) runBackup(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if !c.Common().Backup.IsEnabled() {
		return fmt.Errorf("backups of %s are turned off: set its spec.backup.enabled to true", nameOf(c))
	}
	name := o.name
	if name == "" {
		name = manualName(c.GetName(), time.Now())
	}
	b := &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: name},
		Spec:       v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: kindOf(c).gvk.Kind, Name: c.GetName()}},
	}
	switch err := o.client.Create(cmd.Context(), b, client.FieldOwner(FieldManager)); {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("there is a Backup %s in namespace %s: give it another --name", name, c.GetNamespace())
	case err != nil:
		return fmt.Errorf("create backup %s: %w", name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "bk/%s of %s is to be made\n", name, nameOf(c))
	if !o.wait {
		return nil
	}
	if err := o.awaitBackup(cmd, b); err != nil {
		return fmt.Errorf("bk/%s: %w", name, err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), describeCompleted(b))
	return nil
}

// manualName names a backup after the second it was asked for. It ends alike
// however long the cluster's name is.
func manualName(cluster string, now time.Time) string {
	suffix := "-manual-" + now.UTC().Format("20060102-150405")
	return strings.TrimRight(cluster[:min(len(cluster), longestBackupName-len(suffix))], "-") + suffix
}

// awaitBackup waits until a backup is good, or only a person can go on.
func (o *backupOptions) awaitBackup(cmd *cobra.Command, b *v1alpha1.Backup) error {
	deadline, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	file, isFile := cmd.ErrOrStderr().(*os.File)
	show := follower{w: cmd.ErrOrStderr(), rewrites: isFile && isTerminal(file)}
	defer show.clearLine()
	key, uid := client.ObjectKeyFromObject(b), b.UID
	for {
		*b = v1alpha1.Backup{}
		err := o.client.Get(cmd.Context(), key, b)
		switch {
		case apierrors.IsNotFound(err) || err == nil && b.UID != uid:
			return errors.New("another client has deleted it")
		case err != nil:
			return fmt.Errorf("look at it again: %w; it goes on", err)
		}
		show.showProgress(b)
		if done, err := backupOutcome(b); done {
			return err
		}
		if !waitFor(deadline, waitInterval) {
			return fmt.Errorf("%s, after %s: it goes on, see kubectl get bk %s -n %s", describeStage(b), o.timeout, b.Name, b.Namespace)
		}
	}
}

// backupOutcome says whether there is nothing left to wait for, and what is wrong.
func backupOutcome(b *v1alpha1.Backup) (done bool, why error) {
	stalled := findCondition(b.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case b.DeletionTimestamp != nil:
		return true, errors.New("it is being deleted")
	case findCondition(b.Status.Conditions, v1alpha1.ConditionReady).Status == metav1.ConditionTrue:
		return true, nil
	case stalled.Status != metav1.ConditionTrue:
		return false, nil
	case b.IsFinished():
		return true, fmt.Errorf("%s: %s", stalled.Reason, stalled.Message)
	}
	return true, fmt.Errorf("stalled, %s: %s; it goes on once that is corrected", stalled.Reason, stalled.Message)
}

// describeStage is the stage of a backup, in a few words.
func describeStage(b *v1alpha1.Backup) string {
	text := b.Status.Phase
	if text == "" {
		text = "no operator has looked at it yet"
	}
	if run := b.Status.Run; run != nil && run.Progress != "" && !b.IsFinished() {
		text += " " + run.Progress
	}
	return text
}

func describeCompleted(b *v1alpha1.Backup) string {
	text := fmt.Sprintf("bk/%s is complete and verified", b.Name)
	if r := b.Status.Result; r != nil {
		text += fmt.Sprintf(": %s of %s, version %s", cmp.Or(b.Status.Size, r.Size.String()), orDash(r.Source), r.Version)
	}
	return text
}

// follower shows how far something is: on a terminal in one line, elsewhere a
// line whenever it comes to another phase.
type follower struct {
	w        io.Writer
	rewrites bool
	last     string
}

func (f *follower) showProgress(b *v1alpha1.Backup) {
	text := b.Status.Phase
	if f.rewrites {
		text = describeStage(b)
	}
	if text == f.last {
		return
	}
	f.last = text
	if f.rewrites {
		fmt.Fprintf(f.w, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(f.w, text)
	}
}

// clearLine leaves the line to what comes next.
func (f *follower) clearLine() {
	if f.rewrites && f.last != "" {
		fmt.Fprint(f.w, "\r\x1b[K")
	}
}
