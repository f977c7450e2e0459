# Takes what a fetch left in the quarantine /incoming (read-only, not trusted: a hostile server may have written every byte
# of it) into /mirror. No network. Packs are read as streams: their indexes are made anew, every object is checked, and
# every object it refers to must be there.
#
# usage: join HASH
# Exit status: 0; 21 the commit is not among the objects; 22 our fault; 23 the objects are not sound.
set -u
umask 022
want=$1
mirror=/mirror/repo.git incoming=/incoming/repo.git
ours() { echo "$1" >&2; exit 22; }
hashes() { head -c 16777216 "$1" | grep -Ex '[0-9a-f]{40}|[0-9a-f]{64}' | sort -u; }

if [ ! -d "$mirror" ]; then
        rm -rf "$mirror.tmp"
        git init -q --bare "$mirror.tmp" && mv "$mirror.tmp" "$mirror" || ours "the mirror cannot be made"
fi
if [ -f "$incoming/shallow" ] && [ ! -L "$incoming/shallow" ]; then
        { hashes "$incoming/shallow"; [ ! -f "$mirror/shallow" ] || cat "$mirror/shallow"; } | sort -u >"$mirror/shallow.new"
        mv "$mirror/shallow.new" "$mirror/shallow" || ours "the mirror is not writable"
fi

# Harmless defects that old histories of well-known projects have.
tolerated=zeroPaddedFilemode=ignore,missingSpaceBeforeDate=ignore,missingSpaceBeforeEmail=ignore,badTimezone=ignore,badDate=ignore
tolerated=$tolerated,zeroPaddedDate=ignore,badDateOverflow=ignore,badEmail=ignore,missingEmail=ignore,missingNameBeforeEmail=ignore,badName=ignore,multipleAuthors=ignore
# Submodules are never fetched, so what their file says is nobody's danger here.
tolerated=$tolerated,gitmodulesParse=ignore,gitmodulesBlob=ignore,gitmodulesMissing=ignore,gitmodulesUpdate=ignore,gitmodulesUrl=ignore,gitmodulesPath=ignore
for pack in "$incoming"/objects/pack/pack-*.pack; do
        [ -f "$pack" ] && [ ! -L "$pack" ] || continue
        git -C "$mirror" index-pack --stdin --strict="$tolerated" <"$pack" >/dev/null || exit 23
done
git -C "$mirror" rev-parse --verify -q "$want^{commit}" >/dev/null || { echo "the commit did not arrive" >&2; exit 21; }

# Keeps what was fetched reachable, under names that the remote did not choose.
{ echo "$want"; [ ! -f /incoming/wanted ] || [ -L /incoming/wanted ] || hashes /incoming/wanted; } | sort -u |
        git -C "$mirror" cat-file --batch-check='%(objectname) %(objecttype)' |
        while read -r hash type; do
                case $type in commit|tag) echo "update refs/keep/$hash $hash" ;; esac
        done | git -C "$mirror" update-ref --stdin || ours "the mirror's references cannot be written"
git -C "$mirror" pack-refs --all || ours "the mirror's references cannot be packed"
kib=$(du -sk /mirror) && echo "size ${kib%%[!0-9]*}"
exit 0
