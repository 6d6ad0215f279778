//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/pki"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// TestSoakMySQLFailover has each event of MySQL's table of failovers happen many times.
func TestSoakMySQLFailover(t *testing.T) {
	needLocalCluster(t)
	needKind(t, mysql)
	measured := measureEvents(t, failoverRuns(t, 10), mysqlEvents, func(t *testing.T, _ measuredEvent) *trial {
		return newTrial(createUnwatched(t, mysql, failoverMembers), mysqlFailovers{})
	})
	t.Log(formatMeasurements(measured, nil))
}

// TestSoakMySQL are what MySQL's clusters live through under writes.
func TestSoakMySQL(t *testing.T) {
	needKind(t, mysql)
	t.Run("Scale", func(t *testing.T) { mysqlScale(t, 3, 5, 3, 1) })
	t.Run("LostVolumes", func(t *testing.T) { mysqlLostVolumes(t, 2, 1, 0) })
	t.Run("AllKilled", mysqlAllKilled)
	t.Run("CAReplaced", mysqlCAReplaced)
}

// mysqlScale goes from one member to these numbers of members, one after the other,
// under an application that writes. The primary is put where it has to move away.
func mysqlScale(t *testing.T, steps ...int) {
	c := newSubject(t, mysql, 1)
	c.waitReady()
	w := c.startWriter()
	for _, members := range steps {
		before := len(c.listPods())
		if members < before {
			c.leadByOrdinal(before - 1)
		}
		c.scaleTo(int32(members))
		c.waitFor(crashTimeout, fmt.Sprintf("%d members serve", members), checkWhole)
		checkMySQLGroup(c, members)
		t.Logf("to %d members: the longest gap %s", members, w.takeGap())
		w.goesOn()
	}
	w.stopWriting()
	mysql.awaitUnited(c, steps[len(steps)-1])
}

// leadByOrdinal has a member lead.
func (c *subject) leadByOrdinal(ordinal int) {
	c.t.Helper()
	if c.findLeading() == ordinal {
		return
	}
	c.requestSwitchover(fmt.Sprintf("e2e-%d", c.markPlace()), c.podName(ordinal))
	eventually(c.t, readyTimeout, c.podName(ordinal)+" leads", func(context.Context) error {
		if now := c.findLeading(); now != ordinal {
			return fmt.Errorf("%s leads", c.podName(now))
		}
		return nil
	})
	c.waitFor(readyTimeout, "all members serve", checkWhole)
}

// checkMySQLGroup waits until every member sees a group of so many, also while clients
// write.
func checkMySQLGroup(c *subject, members int) {
	c.t.Helper()
	for n := range members {
		eventually(c.t, serviceTimeout, fmt.Sprintf("%s sees %d members", c.podName(n), members), func(ctx context.Context) error {
			online, err := listOnline(ctx, c.namespace, c.podName(n))
			if err == nil && len(online) != members {
				err = fmt.Errorf("it sees %v", online)
			}
			return err
		})
	}
}

// mysqlLostVolumes: the volumes of these members are lost with their pods, one after the
// other. Each gets the data from another member, and the group stays the same one.
func mysqlLostVolumes(t *testing.T, ordinals ...int) {
	c := newSubject(t, mysql, 3)
	identifier := c.waitReady().CommonStatus().SystemIdentifier
	w := c.startWriter()
	for _, n := range ordinals {
		before := c.runMySQL(n, "select @@server_uuid")
		c.loseVolumes(n)
		c.waitFor(readyTimeout, "another member is in the place of "+c.podName(n), func(obj v1alpha1.Cluster) error {
			if err := checkWhole(obj); err != nil {
				return err
			}
			now, err := queryMySQL(t.Context(), c.namespace, c.podName(n), "select @@server_uuid")
			if err == nil && now == before {
				err = errors.New("it is the same server")
			}
			return err
		})
		checkMySQLGroup(c, 3)
		t.Logf("%s lost its volume: the longest gap %s", c.podName(n), w.takeGap())
		w.goesOn()
	}
	if now := c.getCluster().CommonStatus().SystemIdentifier; now != identifier {
		t.Errorf("another group was made: %s, before %s", now, identifier)
	}
	w.stopWriting()
	mysql.awaitUnited(c, 3)
}

// mysqlAllKilled: every process of all members is killed at once, and then all pods are
// deleted by force. The group starts again with all that was acknowledged.
func mysqlAllKilled(t *testing.T) {
	needLocalCluster(t)
	c := newSubject(t, mysql, 3)
	identifier := c.waitReady().CommonStatus().SystemIdentifier
	w := c.startWriter()
	c.killAll("all processes killed", func(pod *corev1.Pod) { killInPod(t, pod, podprocess.Guard) })
	w.goesOn()
	t.Logf("all processes killed: the longest gap %s", w.takeGap())
	c.killAll("all pods deleted by force", func(pod *corev1.Pod) { deletePod(t, pod, true) })
	w.goesOn()
	t.Logf("all pods deleted by force: the longest gap %s", w.takeGap())
	if now := c.getCluster().CommonStatus().SystemIdentifier; now != identifier {
		t.Errorf("another group was made: %s, before %s", now, identifier)
	}
	w.stopWriting()
	for n := range 3 {
		w.checkMember(n)
	}
	mysql.awaitUnited(c, 3)
}

// killAll ends all members at once, and waits until other containers serve in their
// places.
func (c *subject) killAll(what string, kill func(*corev1.Pod)) {
	c.t.Helper()
	pods := c.listPods()
	var before []string
	for n := range pods {
		before = append(before, c.podIncarnation(n))
	}
	for i := range pods {
		kill(&pods[i])
	}
	eventually(c.t, readyTimeout, what+": other containers serve", func(context.Context) error {
		now := c.listPods()
		if len(now) != len(pods) {
			return fmt.Errorf("there are %d pods", len(now))
		}
		for n := range now {
			if c.podIncarnation(n) == before[n] || !podReady(&now[n]) {
				return fmt.Errorf("not yet in %s", now[n].Name)
			}
		}
		return nil
	})
	c.waitFor(readyTimeout, "all members serve", checkWhole)
}

// mysqlCAReplaced: a user's CA signs from the first certificate on, and is replaced while
// an application writes that reads ca.crt of the connection Secret again. No member
// restarts.
func mysqlCAReplaced(t *testing.T) {
	old, young := userCA(t), userCA(t)
	pair := func(ca *pki.CA) map[string][]byte {
		return map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM}
	}
	c := newSubject(t, mysql, 3, "tls: {caSecretRef: {name: root}}")
	c.waitCondition(stalledTimeout, v1alpha1.ConditionStalled, "True", v1alpha1.ReasonSecretMissing, "spec.tls.caSecretRef")
	c.giveSecret("root", pair(old))
	c.waitReady()
	before := c.allIncarnations()
	w := c.startWriter()
	c.giveSecret("root", pair(young))
	trusted := ""
	eventually(t, tlsTimeout, "the new CA signs, and no member trusts the old one", func(context.Context) error {
		if now := string(c.readSecret("-app")["ca.crt"]); now != trusted {
			w.app.writeFile(t, connection+"/ca.crt", now)
			trusted = now
		}
		material := c.readSecret("-tls")
		if !young.HasSigned(material["tls.crt"]) || string(material["ca.crt"]) != string(young.CertPEM) || trusted != string(young.CertPEM) {
			return errors.New("not yet")
		}
		return nil
	})
	w.goesOn()
	t.Logf("the longest gap %s", w.takeGap())
	c.waitReady()
	// Members connect to each other anew, with certificates of the new CA alone.
	c.leadByOrdinal((c.findLeading() + 1) % 3)
	w.goesOn()
	w.stopWriting()
	if now := c.allIncarnations(); now != before {
		t.Errorf("members were touched: %s\nbefore\n%s", now, before)
	}
	mysql.awaitUnited(c, 3)
}
