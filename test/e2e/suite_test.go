//go:build e2e

package e2e

import "testing"

// TestTogether are the tests that leave the operator alone. They run side by
// side, each in namespaces of its own.
func TestTogether(t *testing.T) {
	together(t, []part{
		{"SeedManifest", seedManifest},
		{"Truth", truthOfStatus},
		{"Drift", driftReverted},
		{"DriftModes", driftModes},
		{"DriftContested", driftContested},
		{"Scale", scaleUnderWrites},
		{"Lag", laggingReplicaLeaves},
		{"AgentDies", agentDies},
		{"Retain", deletionRetains},
		{"RetainOtherNames", recreatedWithOtherNames},
		{"GivenUp", recreatedWithoutVolumes},
		{"Delete", deletionDeletes},
		{"BadInputRefused", badInputRefused},
		{"BadInputLiving", badInputLiving},
		{"BadStorageClass", badStorageClass},
		{"FixedVolume", fixedVolume},
		{"NameConflict", nameConflict},
		{"OtherMajorAdopted", otherMajorAdopted},
		{"Quota", quotaExceeded},
		{"Secrecy", secretsStaySecret},
		{"Settings", settings},
		{"MinorUpgrade", minorUpgrade},
		{"MovingTag", movingTag},
		{"VolumeGrows", volumeGrows},
		{"TLS", clientsUseTLS},
		{"Examples", examples},
		{"Plugin", plugin},
	})
}

// part of a test.
type part struct {
	name string
	run  func(*testing.T)
}

// together runs parts side by side.
func together(t *testing.T, parts []part) {
	t.Helper()
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

// TestWithOperator are the tests that count what the operator does, or stop
// it. They run after the others and one by one.
func TestWithOperator(t *testing.T) {
	waitForNamespacesToEnd(t)
	t.Run("Quiet", func(t *testing.T) { quiet(t, 10, quietMinute) })
	t.Run("TruthThroughRestart", truthThroughRestart)
	t.Run("DriftWhileDown", driftWhileDown)
	t.Run("CrashAtEachStep", crashAtEachStep)
	t.Run("StandbyTakesOver", standbyTakesOver)
	t.Run("NamespaceEndsWithoutOperator", namespaceEndsWithoutOperator)
	t.Run("FluxUpgrades", fluxUpgrades)
	t.Run("FluxFromEmpty", fluxFromEmpty)
	t.Run("Namespaced", namespacedOperator)
}
