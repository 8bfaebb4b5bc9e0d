"""Callback URLs that must not open a socket, and hosts that must not be rejected.

Sources: the IANA special-purpose registries, the URL Standard's host parser, OWASP's SSRF cheat sheet, and the providers'
pages about their metadata services.
"""

# ruff: noqa: RUF001 - look-alike digits and dots are what is tried here

from typing import Final

BLOCKED_IPV4: Final = (
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.254", "127.0.0.1",
    "127.1.2.3", "127.255.255.254", "168.63.129.16", "169.254.0.23", "169.254.169.254", "169.254.170.2", "169.254.170.23",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255",
)  # fmt: skip

BLOCKED_IPV6: Final = (
    "::", "::1", "::2", "::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.1.2.3",
    "::ffff:169.254.169.254", "0:0:0:0:0:ffff:c0a8:1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe",
    "64:ff9b::10.0.0.1", "64:ff9b:1::1", "64:ff9b:1::8.8.8.8", "64:ff9b:1::a9fe:a9fe", "100::1", "100:0:0:1::1",
    "2001::1", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:2::1", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::1", "2002:a9fe:a9fe::1", "2002:808:808::1", "3fff::1", "3fff:fff::1",
    "4000::1", "5f00::1", "8000::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::a9fe:a9fe",
    "febf::1", "fec0::1", "feff::1", "ff02::1", "ff0e::1", "200::1", "1000::1",
)  # fmt: skip

BLOCKED_URLS: Final = (
    *(f"https://{address}/hook" for address in BLOCKED_IPV4),
    *(f"https://[{address}]/hook" for address in BLOCKED_IPV6),
    # other spellings of 127.0.0.1 that resolvers and browsers understand
    "https://0177.0.0.1/", "https://0177.0.0.01/", "https://017700000001/", "https://2130706433/", "https://0x7f.1/",
    "https://0x7f000001/", "https://0X7F.0.0.1/", "https://0x7f.0x0.0x0.0x1/", "https://127.1/", "https://127.0.1/",
    "https://127.0.0.1./", "https://127.0.0.1../", "https://127.0.0.01/", "https://127.000.000.001/", "https://0/",
    "https://00/", "https://0x/", "https://127.0.0.0x1/", "https://127.0.0.1.1/", "https://256.256.256.256/",
    "https://127.0.0.256/", "https://4294967296/", "https://1.2.3.4.5/", "https://name.0x7f/", "https://name.1/",
    "https://１２７.0.0.1/", "https://１２７．０．０．１/", "https://127。0。0。1/", "https://127｡0｡0｡1/", "https://①②⑦.⓪.⓪.①/",
    "https://٠.٠.٠.٠/", "https://２１３０７０６４３３/", "https://０ｘ７ｆ.１/", "https://%31%32%37.0.0.1/", "https://127%2e0.0.1/",
    "https://127.0.0.1%00.example.com/", "https://127.0.0.1%2f.example.com/",
    "https://127.0.0.1:443/", "https://127.0.0.1:8443/", "https://127.0.0.1?x", "https://0x7f000001:443/", "https://017700000001:443/",
    "https://127.0.0.1./hook", "https://127%E3%80%820.0.1/", "https://127.0.0.1%20/", "https://127.0.0.1%09/", "https://0b1111111.0.0.1/",
    "https://0o177.0.0.1/", "https://0x7f.0.0.1/", "https://127.0.0.1%2509/", "https://2130706433./", "https://0x7f000001./", "https://02130706433/",
    "https://18446744073709551617/", "https://-1/", "https://127.0.0.1:443@good.example/", "https://𝟏𝟐𝟕.0.0.1/", "https://127.0.0.𝟣/",
    "https://127.0.0.1:65536/", "https://１６９.２５４.１６９.２５４/", "https://2852039166/", "https://0xa9fea9fe/", "https://0xa9.0xfe.0xa9.0xfe/",
    "https://0251.0376.0251.0376/", "https://169.254.43518/", "https://169.16689662/", "https://10.0.1/", "https://192.168.257/",
    # brackets and zones
    "https://[::1]/", "https://[::1]:443/", "https://[::1]./", "https://[::]/", "https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:127.0.0.1%25lo]/",
    "https://[0000:0000:0000:0000:0000:0000:0000:0001]/", "https://[::0001]/", "https://[:::1]/", "https://[::1]:/", "https://[::1]@good.example/",
    "https://［::1］/", "https://[::１]/", "https://[::ffff:a9fe:a9fe]/", "https://[fe80::1%]/",
    "https://[::1%25lo]/", "https://[::1%lo]/", "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1]x/",
    "https://x[::1]/", "https://[[::1]]/", "https://[127.0.0.1]/", "https://[v1.127.0.0.1]/", "https://[]/", "https://[::1/",
    "https://::1/", "https://[::ffff:0177.0.0.1]/", "https://[::ffff:127.1]/", "https://[1::2::3]/",
    # another host hidden in the same text
    "https://good.example@127.0.0.1/", "https://127.0.0.1@good.example/", "https://user:secret@good.example/",
    "https://@good.example/", "https://good.example:443@127.0.0.1/", "https://good.example\\@127.0.0.1/",
    "https://good.example\\.127.0.0.1/", "https:\\\\127.0.0.1/", "https://good.example#@127.0.0.1/", "https://127.0.0.1#/",
    "https://good.example/#fragment", "https://good.example\t.127.0.0.1/", "https://good.example\n/", "https://127.0.0.1\r\n/",
    "https://good.example\x00.evil/", "https://good.example /",
    " https://127.0.0.1/", "https://127.0.0.1/ ", "https://127.0.0.1/a b",
    "https://good.example/\r\nHost: evil", "https://good.example/\x7f", "https://good\u00ad.example\u2028/",
    # names that resolve to blocked addresses (NAMES)
    "https://localhost/", "https://LOCALHOST/", "https://ⓛocalhost/", "https://localhost./", "https://sub.localhost/",
    "https://metadata.google.internal/", "https://instance-data/", "https://kubernetes.default.svc/", "https://loop.test/",
    "https://mapped.test/", "https://nat64.test/", "https://mixed-a.test/", "https://mixed-aaaa.test/", "https://last-of-many.test/",
    "https://127.0.0.1.nip.test/", "https://bücher.test/", "https://zero.test/", "https://no-address.test/",
    # other schemes and forms
    "http://good.example/", "http://127.0.0.1/", "http://localhost/", "HTTP://good.example/", "httpſ://good.example/", "ftp://good.example/",
    "file:///etc/passwd", "gopher://127.0.0.1:25/", "ws://good.example/", "javascript:alert(1)", "data:text/plain,x",
    "//127.0.0.1/", "/hook", "127.0.0.1", "https:127.0.0.1", "https:/127.0.0.1/", "https:///127.0.0.1/", "https://", "https:///",
    "",
    "https://?x", "https://:443/", "https://.example.com/", "https://a..example/", "https://-a.example/", "https://a-.example/",
    "https://good.example:0/", "https://good.example:65536/", "https://good.example:99999/", "https://good.example:/",
    "https://good.example:-1/", "https://good.example:+443/", "https://good.example:4４3/", "https://good.example:443:443/",
    "https://good.example:0x1bb/", "https://good.example:000443/", "https://good!.example/", "https://*.example/",
    "https://good.example/ünicode", "https://\ud800.example/", "https://" + "a" * 64 + ".example/",
    "https://" + "a." * 127 + "example/", "https://good.example/" + "a" * 2048,
)  # fmt: skip

BLOCKED_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "localhost": ("127.0.0.1", "::1"),
    "sub.localhost": ("127.0.0.1",),
    "metadata.google.internal": ("169.254.169.254",),
    "instance-data": ("169.254.169.254",),
    "kubernetes.default.svc": ("10.96.0.1",),
    "loop.test": ("127.0.0.1",),
    "mapped.test": ("::ffff:127.0.0.1",),
    "nat64.test": ("64:ff9b::7f00:1",),
    "mixed-a.test": ("10.0.0.1", "2606:4700::1111"),
    "mixed-aaaa.test": ("93.184.216.34", "fd00::1"),
    "last-of-many.test": (*(f"93.184.216.{last}" for last in range(1, 60)), "127.0.0.1"),
    "127.0.0.1.nip.test": ("127.0.0.1",),
    "xn--bcher-kva.test": ("192.168.1.1",),
    "zero.test": ("0.0.0.0",),
    "no-address.test": (),
}

ALLOWED_URLS: Final[dict[str, tuple[str, str]]] = {
    "https://example.com": ("example.com", "https://example.com"),
    "https://example.com/": ("example.com", "https://example.com"),
    "https://EXAMPLE.com/Hook?mcp_event_subscription=8b1c": ("example.com", "https://example.com"),
    "HTTPS://example.com/": ("example.com", "https://example.com"),
    "https://example.com:443/": ("example.com", "https://example.com"),
    "https://example.com:8443/a/b;c=d?e=f&g=%20": ("example.com", "https://example.com:8443"),
    "https://example.com?only=query": ("example.com", "https://example.com"),
    "https://hooks.eu-west-1.example.co.uk/": (
        "hooks.eu-west-1.example.co.uk",
        "https://hooks.eu-west-1.example.co.uk",
    ),
    "https://under_score.example.com/": ("under_score.example.com", "https://under_score.example.com"),
    "https://1password.example/": ("1password.example", "https://1password.example"),
    "https://127.0.0.1.example.com/": ("127.0.0.1.example.com", "https://127.0.0.1.example.com"),
    "https://0xdeadbeef.example/": ("0xdeadbeef.example", "https://0xdeadbeef.example"),
    "https://a.b.c.d.e.f.example/": ("a.b.c.d.e.f.example", "https://a.b.c.d.e.f.example"),
    "https://receiver/": ("receiver", "https://receiver"),
    "https://münchen.example/": ("xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example"),
    "https://faß.example/": ("xn--fa-hia.example", "https://xn--fa-hia.example"),
    "https://日本語.example/": ("xn--wgv71a119e.example", "https://xn--wgv71a119e.example"),
    "https://ｅｘａｍｐｌｅ．com/": ("example.com", "https://example.com"),
    "https://xn--mnchen-3ya.example/": ("xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example"),
    "https://8.8.8.8/": ("8.8.8.8", "https://8.8.8.8"),
    "https://93.184.216.34:9443/": ("93.184.216.34", "https://93.184.216.34:9443"),
    "https://１.1.1.1/": ("1.1.1.1", "https://1.1.1.1"),
    "https://172.15.255.255/": ("172.15.255.255", "https://172.15.255.255"),
    "https://172.32.0.1/": ("172.32.0.1", "https://172.32.0.1"),
    "https://192.0.1.1/": ("192.0.1.1", "https://192.0.1.1"),
    "https://198.20.0.1/": ("198.20.0.1", "https://198.20.0.1"),
    "https://223.255.255.255/": ("223.255.255.255", "https://223.255.255.255"),
    "https://[2606:4700:4700::1111]/": ("2606:4700:4700::1111", "https://[2606:4700:4700::1111]"),
    "https://[2606:4700:4700:0:0:0:0:1111]:444/": ("2606:4700:4700::1111", "https://[2606:4700:4700::1111]:444"),
    "https://[2A00:1450::1]/": ("2a00:1450::1", "https://[2a00:1450::1]"),
    "https://[64:ff9b::8.8.8.8]/": ("64:ff9b::808:808", "https://[64:ff9b::808:808]"),
    "https://[2001:200::1]/": ("2001:200::1", "https://[2001:200::1]"),
}
"""With the checked host and the connected origin."""
