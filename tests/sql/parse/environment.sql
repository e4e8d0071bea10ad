CREATE TABLE ${TABLE} AS SELECT * FROM ${BASE}/orders/*.csv WITH ("delimiter" = "${DELIMITER:;}", "null" = '${QUOTED}');
CREATE TABLE limited AS SELECT * FROM kafka://${TOPIC:fallback}-x t WHERE a > ${LIMIT:10};
CREATE TABLE secret AS SELECT * FROM postgresql://host/db?table=users WITH ("password" = "${env:PASSWORD}", "username" = "${file:/run/user}", "port" = "${env:PORT}");
-- ${NOT_LOOKED_AT} in a comment
