package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// ErrAddressRefused is in the chain of the error for a server whose address must not be connected to: link-local,
// cloud metadata, unspecified, multicast and, unless allowed, loopback addresses.
var ErrAddressRefused = errors.New("address refused")

// metadataAddresses are where clouds answer with credentials, outside the link-local ranges.
func metadataAddresses() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),
		netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("192.0.0.192"),
	}
}

// dialer checks the address that a name was resolved to, at the moment of the connect, so that no second resolution can
// differ from the checked one.
func dialer(allowLoopback bool, timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	metadata := metadataAddresses()
	d := &net.Dialer{
		Timeout:   timeout,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			addr, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: not an IP address", ErrAddressRefused)
			}
			return checkAddress(addr.Addr(), allowLoopback, metadata)
		},
	}
	return d.DialContext
}

func checkAddress(addr netip.Addr, allowLoopback bool, metadata []netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if embedded, ok := nat64(addr); ok {
		addr = embedded
	}
	switch {
	case addr.IsLoopback():
		if !allowLoopback {
			return fmt.Errorf("%w: loopback, which only --allow-loopback-clusters permits", ErrAddressRefused)
		}
		return nil
	case addr.IsUnspecified():
		return fmt.Errorf("%w: unspecified", ErrAddressRefused)
	case addr.IsLinkLocalUnicast(), addr.IsMulticast():
		return fmt.Errorf("%w: link-local or multicast", ErrAddressRefused)
	}
	if slices.Contains(metadata, addr) {
		return fmt.Errorf("%w: metadata service", ErrAddressRefused)
	}
	return nil
}

// nat64 returns the IPv4 address inside an address of the well-known NAT64 prefix 64:ff9b::/96.
func nat64(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() || !netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		return netip.Addr{}, false
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}
