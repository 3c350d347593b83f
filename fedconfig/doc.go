// Package fedconfig reads peers from YAML or JSON.
package fedconfig
